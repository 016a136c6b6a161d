-- Written by `gpuwright gateway` before every change; edits here are lost.
-- Measures the answers of language models: first token, pace of tokens, and tokens in and out. HAProxy logs txn.gw_tokens.
-- A stream's events with text are its tokens, unless its last event has the usage. Only the end of an answer is kept.

local TokenFilter = {}
TokenFilter.id = "gpuwright tokens"
TokenFilter.flags = filter.FLT_CFG_FL_HTX
TokenFilter.__index = TokenFilter

local KEPT_BYTES = 1024

local function now_us()
    local now = core.now()
    return now.sec * 1000000 + now.usec
end

local function is_completion(path)
    return path == "/v1/chat/completions" or path == "/v1/completions"
end

-- A figure with more than nine digits is no count: the sidecar would refuse the line, and with it the request.
local function count_of(text, name)
    local digits = text:match('.*"' .. name .. '": ?(%d+)')
    return digits and #digits <= 9 and tonumber(digits) or nil
end

function TokenFilter:new()
    return setmetatable({ events = 0, kept = "", first = 0, last = 0 }, TokenFilter)
end

function TokenFilter:http_headers(txn, message)
    if not message.channel:is_resp() then
        if is_completion(txn.sf:path()) then
            self.began = now_us()
        end
    elseif self.began and tonumber(txn.sf:status()) == 200 then
        local kind = message:get_headers()["content-type"]
        self.streams = kind ~= nil and kind[0]:find("text/event-stream", 1, true) == 1
        self.answers = true
        filter.register_data_filter(self, message.channel)
    end
end

function TokenFilter:http_payload(txn, message)
    local data = message:body()
    if not data or data == "" then
        return
    end
    if self.streams then
        local _, content = data:gsub('"content": ?"[^"]', "")
        local _, text = data:gsub('"text": ?"[^"]', "")
        if content + text > 0 then
            self.events = self.events + content + text
            self.last = now_us()
            if self.first == 0 then
                self.first = self.last
                -- If the caller leaves before the end, this much is known.
                txn:set_var("txn.gw_tokens", string.format("%d:-1:0:0", (self.first - self.began) // 1000))
            end
        end
    end
    if #data >= KEPT_BYTES then
        self.kept = data:sub(-KEPT_BYTES)
    else
        self.kept = (self.kept .. data):sub(-KEPT_BYTES)
    end
end

function TokenFilter:http_end(txn, message)
    if not self.answers or not message.channel:is_resp() then
        return
    end
    local given = count_of(self.kept, "completion_tokens") or self.events
    local taken = count_of(self.kept, "prompt_tokens") or 0
    local first_ms, pace_us = -1, -1
    if self.first > 0 then
        first_ms = (self.first - self.began) // 1000
        if given > 1 then
            pace_us = (self.last - self.first) // (given - 1)
        end
    end
    txn:set_var("txn.gw_tokens", string.format("%d:%d:%d:%d", first_ms, pace_us, taken, given))
end

core.register_filter("gpuwright-tokens", TokenFilter, function(made)
    return made
end)
