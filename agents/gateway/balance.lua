-- Written by `gpuwright gateway` before every change; edits here are lost.
-- Sends each request of a language model to the copy with the fewest tokens in flight by weight: those of the prompts of
-- its open requests, and of their answers. All threads share this state, so it is loaded with lua-load. A call stays far
-- below tune.lua.forced-yield: no other runs in between.

local ANSWER = 256 -- tokens, of every answer: its length is unknown before it ends
local UNKNOWN = 256 -- tokens, of a prompt of unknown length
local LONGEST = 131072 -- tokens; one caller who lies about a length must not look like a full service
local BYTES = 4 -- of a token
local MOST_TRIES = 4 -- copies that turn out to be down or full, before HAProxy chooses by open requests

local services = {} -- those with open requests, by name
local turn = 0 -- copies that are equal take turns

local function tokens_of(txn)
    local bytes = tonumber(txn.sf:req_hdr("content-length"))
    local prompt = bytes and math.max(1, math.min(LONGEST, bytes // BYTES)) or UNKNOWN
    return math.tointeger(prompt) + ANSWER
end

local function parse(text)
    local listed = {}
    for name, weight, most in text:gmatch("([^=,]+)=(%d+)=(%d+)") do
        listed[#listed + 1] = { name = name, weight = tonumber(weight), most = tonumber(most) }
    end
    return listed
end

-- HAProxy knows best what is up and has room; of a server that is gone it raises an error.
local function takes_requests(txn, name)
    local place = txn.f:be_name() .. "/" .. name
    local known, free = pcall(txn.f.srv_conn_free, txn.f, place)
    return known and free ~= 0 and txn.f:srv_is_up(place) == 1
end

local function find_copy(txn, service, tokens)
    local listed, tried = service.listed, {}
    turn = (turn + 1) % 1000000
    for _ = 1, MOST_TRIES do
        local best, least
        for at = 1, #listed do
            local copy = listed[(at + turn) % #listed + 1]
            local has = service.copies[copy.name]
            local load = ((has and has.tokens or 0) + tokens) / copy.weight
            if (not best or load < least) and not tried[copy.name] and not (has and has.open >= copy.most) then
                best, least = copy.name, load
            end
        end
        if not best or takes_requests(txn, best) then
            return best
        end
        tried[best] = true
    end
end

local function count(service, name, tokens, requests)
    local has = service.copies[name] or { tokens = 0, open = 0 }
    has.tokens, has.open = has.tokens + tokens, has.open + requests
    service.tokens, service.open = service.tokens + tokens, service.open + requests
    service.copies[name] = has.open > 0 and has or nil
end

core.register_action("gpuwright-choose", { "http-req" }, function(txn)
    local text, called = txn:get_var("txn.gw_copies"), txn:get_var("txn.gw_service")
    if not text then
        return
    end
    local service = services[called] or { tokens = 0, open = 0, copies = {} }
    local most = txn:get_var("txn.gw_most_tokens") or 0
    if most > 0 and service.tokens >= most then
        txn:set_var("txn.gw_full", 1)
        return
    end
    if service.text ~= text then
        service.text, service.listed = text, parse(text)
    end
    local tokens = tokens_of(txn)
    local name = find_copy(txn, service, tokens)
    if name then
        txn:set_var("txn.gw_copy", name)
        txn:set_var("txn.gw_counted", tokens)
        count(service, name, tokens, 1)
        services[called] = service
    end
end)

local Counted = {}
Counted.id = "gpuwright balance"
Counted.flags = filter.FLT_CFG_FL_HTX
Counted.__index = Counted

function Counted:new()
    return setmetatable({}, Counted)
end

-- HAProxy calls this for both directions of every stream, in whatever way it ends.
function Counted:end_analyze(txn)
    local tokens = not self.ended and txn:get_var("txn.gw_counted")
    if not tokens then
        return
    end
    self.ended = true
    local called = txn:get_var("txn.gw_service")
    local service = services[called]
    count(service, txn:get_var("txn.gw_copy"), -tokens, -1)
    if service.open == 0 then
        services[called] = nil
    end
end

core.register_filter("gpuwright-balance", Counted, function(made)
    return made
end)

core.register_cli({ "show", "gpuwright", "tokens" }, "show gpuwright tokens: in flight, by service and copy", function(applet)
    for called, service in pairs(services) do
        for name, has in pairs(service.copies) do
            applet:send(string.format("%s %s %d %d\n", called, name, has.tokens, has.open))
        end
    end
end)
