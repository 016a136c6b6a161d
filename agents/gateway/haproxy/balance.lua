-- Written by `gpuwright gateway` before every change; edits here are lost.
-- Sends each request of a language model to the copy with the fewest tokens in flight by weight: those of the prompts of
-- its open requests, and of their answers. Every thread has this file's state for itself, because HAProxy 2.6 runs
-- no stream in two kinds of states, and tokens.lua needs no lock. A thread writes its counts to variables of the process,
-- which only it writes; all threads read them.

local ANSWER = 1024 -- tokens, of every answer: its length is unknown, and all of its iterations wait for those beside it
local UNKNOWN = 256 -- tokens, of a prompt of unknown length
local LONGEST = 131072 -- tokens; one caller who lies about a length must not look like a full service
local BYTES = 4 -- of a token
local MOST_TRIES = 4 -- copies that turn out to be down or full, before HAProxy chooses by open requests

local own = {} -- tokens and requests in flight of this thread's streams, by backend and copy
local parsed = {} -- what was read last, by variable
local threads -- of this process
local listed = {} -- the copies of each backend, as the map has them

local function tokens_of(txn)
    local bytes = tonumber(txn.sf:req_hdr("content-length"))
    local prompt = bytes and math.max(1, math.min(LONGEST, bytes // BYTES)) or UNKNOWN
    return math.tointeger(prompt) + ANSWER
end

-- Returns what was made of a text before, or makes it.
local function parse_new(known, key, text, make)
    if not known[key] or known[key].text ~= text then
        known[key] = { text = text, made = make(text) }
    end
    return known[key].made
end

local function parse_triples(text)
    local found = {}
    for name, first, second in text:gmatch("([^=,]+)=(%d+)=(%d+)") do
        found[#found + 1] = { name, math.tointeger(first), math.tointeger(second) }
    end
    return found
end

local function variable(backend, thread)
    return "proc.gw_in_flight_" .. backend:gsub("%W", "_") .. "_" .. thread
end

-- Returns tokens and requests in flight by copy, over all threads.
local function in_flight(reader, backend)
    local tokens, requests = {}, {}
    threads = threads or tonumber(core.get_info().Nbthread)
    for thread = 1, threads do
        local name = variable(backend, thread)
        for _, has in ipairs(parse_new(parsed, name, reader:get_var(name) or "", parse_triples)) do
            tokens[has[1]] = (tokens[has[1]] or 0) + has[2]
            requests[has[1]] = (requests[has[1]] or 0) + has[3]
        end
    end
    return tokens, requests
end

-- After some thousand steps HAProxy may run another request of this thread in between, but not within such a callback.
local function unbroken(work)
    string.gsub("x", "x", work)
end

local function count(txn, backend, name, tokens, requests)
    local copies = own[backend] or {}
    own[backend] = copies
    local has = copies[name] or { 0, 0 }
    has = { has[1] + tokens, has[2] + requests }
    copies[name] = has[2] > 0 and has or nil
    local parts = {}
    for copy, each in pairs(copies) do
        parts[#parts + 1] = string.format("%s=%d=%d", copy, each[1], each[2])
    end
    txn:set_var(variable(backend, core.thread), table.concat(parts, ","))
end

-- HAProxy knows best what is up and has room; of a server that is gone it raises an error. It writes into the string that
-- names the server, so each call needs a new one, which nothing else uses.
local function takes_requests(txn, backend, name)
    local known, free = pcall(txn.f.srv_conn_free, txn.f, backend .. "/" .. name)
    return known and free ~= 0 and txn.f:srv_is_up(backend .. "/" .. name) == 1
end

local function find_copy(txn, backend, copies, asked, tokens, requests)
    local tried, first = {}, txn.f:rand(#copies) -- of copies that are equal any is the first
    for _ = 1, MOST_TRIES do
        local best, least
        for at = 1, #copies do
            local name, weight, most = table.unpack(copies[(at + first) % #copies + 1])
            local load = ((tokens[name] or 0) + asked) / weight
            if (not best or load < least) and not tried[name] and (requests[name] or 0) < most then
                best, least = name, load
            end
        end
        if not best or takes_requests(txn, backend, best) then
            return best
        end
        tried[best] = true
    end
end

core.register_action("gpuwright-choose", { "http-req" }, function(txn)
    local text = txn:get_var("txn.gw_copies")
    if not text then
        return
    end
    local backend = txn.f:be_name()
    local tokens, requests = in_flight(txn, backend)
    local asked = tokens_of(txn)
    local copies = parse_new(listed, backend, text, parse_triples)
    local name = find_copy(txn, backend, copies, asked, tokens, requests)
    if name then
        txn:set_var("txn.gw_copy", name)
        txn:set_var("txn.gw_counted", asked)
        txn:set_var("txn.gw_backend", backend)
        unbroken(function()
            count(txn, backend, name, asked, 1)
        end)
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
    local asked = not self.ended and txn:get_var("txn.gw_counted")
    if asked then
        self.ended = true
        unbroken(function()
            count(txn, txn:get_var("txn.gw_backend"), txn:get_var("txn.gw_copy"), -asked, -1)
        end)
    end
end

core.register_filter("gpuwright-balance", Counted, function(made)
    return made
end)

core.register_cli({ "show", "gpuwright", "tokens" }, "show gpuwright tokens: in flight, by copy", function(applet)
    for backend in pairs(core.backends) do
        if backend:find("^gw%-%d") then
            local tokens, requests = in_flight(applet, backend)
            for name in pairs(tokens) do
                applet:send(string.format("%s %s %d %d\n", backend, name, tokens[name], requests[name]))
            end
        end
    end
end)
