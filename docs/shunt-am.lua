-- Wireshark dissector of endpoints' frames (docs/WIRE.md, "sh", version 1): updates, and the active messages in messages; and of the gate's datagrams.
--   tshark -X lua_script:docs/shunt-am.lua -r FILE
local am = Proto("shunt_am", "Shunt active messages")

local version = 2
local frames = { [0] = "message", [1] = "update", [2] = "update with notification" }
local kinds = {
    [1] = "ask", [2] = "data", [3] = "acknowledge", [4] = "reset", [5] = "probe", [6] = "plain", [7] = "bye",
    [8] = "answer", [9] = "prove", [10] = "confirm",
}
local hello = { [1] = true, [8] = true, [9] = true, [10] = true }
local streams = {
    [1] = "open", [2] = "opened", [3] = "refused", [4] = "fin", [5] = "reset", [6] = "urgent", [7] = "close", [8] = "cancel",
    [9] = "cancelled", [10] = "begin", [11] = "begun",
}
-- Handlers' numbers are each program's own: whoever looks at sockets' streams says so (-o shunt_am.streams:TRUE).
am.prefs.streams = Pref.bool("Messages are those of sockets' streams", false, "Names the handlers of stations")
local tasks = { [1] = "request", [2] = "reply", [3] = "stream", [4] = "store", [5] = "get", [6] = "fetched", [7] = "room", [8] = "returned" }

local f = {
    frame = ProtoField.uint8("shunt_am.frame", "Endpoint's frame", base.DEC, frames),
    key = ProtoField.uint64("shunt_am.update.key", "Key of the export", base.HEX),
    offset = ProtoField.uint64("shunt_am.update.offset", "Offset in the export"),
    tag = ProtoField.uint64("shunt_am.tag", "Endpoint's tag", base.HEX),
    kind = ProtoField.uint8("shunt_am.kind", "Kind", base.DEC, kinds, 0x0f),
    prompt = ProtoField.bool("shunt_am.prompt", "Prompt", 8, nil, 1),
    tentative = ProtoField.bool("shunt_am.tentative", "Tentative", 8, nil, 2),
    channel = ProtoField.uint16("shunt_am.channel", "Channel"),
    check = ProtoField.uint32("shunt_am.check", "Check, or request limit of a plain frame", base.HEX),
    token = ProtoField.uint64("shunt_am.token", "Token, or the receiver's name in a hello", base.HEX),
    sequence = ProtoField.uint32("shunt_am.sequence", "Sequence"),
    acknowledged = ProtoField.uint32("shunt_am.acknowledged", "Acknowledged"),
    limit = ProtoField.uint32("shunt_am.limit", "Request limit"),
    time = ProtoField.uint32("shunt_am.time", "Time (us)"),
    echo = ProtoField.uint32("shunt_am.echo", "Echo (us)"),
    in_channel = ProtoField.uint32("shunt_am.in_channel", "Number in channel"),
    map = ProtoField.uint64("shunt_am.map", "Map", base.HEX),
    epoch = ProtoField.uint64("shunt_am.epoch", "Epoch", base.HEX),
    name = ProtoField.uint64("shunt_am.name", "Sender's name", base.HEX),
    window = ProtoField.uint32("shunt_am.hello.window", "Window (packets)"),
    channels = ProtoField.uint32("shunt_am.hello.channels", "Ordered channels"),
    largest = ProtoField.uint32("shunt_am.hello.frame", "Largest frame"),
    first = ProtoField.uint32("shunt_am.hello.limit", "Requests taken at first"),
    reliable = ProtoField.uint32("shunt_am.hello.reliable", "Device loses nothing"),
    task = ProtoField.uint8("shunt_am.task", "Task", base.DEC, tasks),
    handler = ProtoField.uint8("shunt_am.handler", "Handler"),
    last = ProtoField.bool("shunt_am.last", "Last", 8, nil, 1),
    refused = ProtoField.bool("shunt_am.refused", "Refused", 8, nil, 2),
    words = ProtoField.uint8("shunt_am.words", "Words"),
    length = ProtoField.uint32("shunt_am.length", "Length of data"),
    word = ProtoField.uint64("shunt_am.word", "Word", base.HEX),
    data = ProtoField.bytes("shunt_am.data", "Data"),
}
local list = {}
for _, field in pairs(f) do list[#list + 1] = field end
am.fields = list

local function messages(range, tree)
    local at, names = 0, {}
    while at + 8 <= range:len() do
        local words, length = range(at + 2, 1):uint(), range(at + 4, 4):le_uint()
        local size = 8 + words * 8 + length
        if at + size > range:len() then break end
        local task, handler = range(at, 1):uint(), range(at + 1, 1):uint()
        local name = tasks[task] or "?"
        if am.prefs.streams and (task == 1 or task == 2) and streams[handler] then name = streams[handler] end
        names[#names + 1] = name
        local node = tree:add(am, range(at, size), "Message: " .. name)
        node:add(f.task, range(at, 1))
        node:add(f.handler, range(at + 1, 1))
        node:add(f.words, range(at + 2, 1))
        node:add(f.last, range(at + 3, 1))
        node:add(f.refused, range(at + 3, 1))
        node:add_le(f.length, range(at + 4, 4))
        for word = 0, words - 1 do node:add_le(f.word, range(at + 8 + word * 8, 8)) end
        if length > 0 then node:add(f.data, range(at + 8 + words * 8, length)) end
        at = at + size
    end
    return table.concat(names, ", ")
end

-- One frame of the engine: what the endpoint's message holds.
local function frame(range, info, tree)
    if range:len() < 16 then return false end
    local first = range(0, 1):uint()
    local kind = first % 16
    if first - kind ~= version * 16 or not kinds[kind] then return false end
    info.cols.protocol = "shunt-am"
    local node = tree:add(am, range)
    node:add(f.kind, range(0, 1))
    node:add(f.prompt, range(1, 1))
    node:add(f.tentative, range(1, 1))
    node:add_le(f.channel, range(2, 2))
    node:add_le(f.check, range(4, 4))
    node:add_le(f.token, range(8, 8))
    local text = kinds[kind]
    if hello[kind] and range:len() >= 56 then
        node:add_le(f.epoch, range(16, 8))
        node:add_le(f.name, range(24, 8))
        for at, field in ipairs({ f.window, f.channels, f.largest, f.first, f.reliable }) do
            node:add_le(field, range(28 + at * 4, 4))
        end
    elseif (kind == 2 or kind == 3 or kind == 5) and range:len() >= 40 then
        for at, field in ipairs({ f.sequence, f.acknowledged, f.limit, f.time, f.echo, f.in_channel }) do
            node:add_le(field, range(12 + at * 4, 4))
        end
        text = text .. " seq " .. range(16, 4):le_uint() .. " ack " .. range(20, 4):le_uint()
        if kind == 2 and range:len() > 40 then
            text = text .. ": " .. messages(range(40), node)
        elseif kind == 3 then
            for at = 40, range:len() - 8, 8 do node:add_le(f.map, range(at, 8)) end
        end
    elseif kind == 6 and range:len() > 16 then
        text = text .. ": " .. messages(range(16), node)
    end
    info.cols.info = text
    return true
end

-- Data for memory that the receiver exported.
local function update(range, info, tree, name)
    info.cols.protocol = "shunt-am"
    local node = tree:add(am, range)
    node:add_le(f.key, range(0, 8))
    node:add_le(f.offset, range(8, 8))
    if range:len() > 16 then node:add(f.data, range(16)) end
    info.cols.info = name .. " at " .. tostring(range(8, 8):le_uint64()) .. ", " .. (range:len() - 16) .. " bytes"
    return true
end

-- Behind the endpoint's header, if it is there: how many bytes that frame has.
local function one(buffer, info, tree)
    if buffer:len() < 32 or buffer(0, 2):string() ~= "sh" or buffer(2, 1):uint() ~= 1 then return 0 end
    local kind, length = buffer(3, 1):uint(), buffer(4, 4):le_uint()
    if not frames[kind] or length < 16 or length > buffer:len() - 16 then return 0 end
    tree:add(f.frame, buffer(3, 1))
    tree:add_le(f.tag, buffer(8, 8))
    local payload, known = buffer(16, length), false
    if kind == 0 then
        known = frame(payload, info, tree)
    else
        known = update(payload, info, tree, frames[kind])
    end
    return known and 16 + length or 0
end

-- A frame, or a run of them that nobody has cut yet: the first one is told of, all are shown.
local function heuristic(buffer, info, tree)
    local at, more = one(buffer, info, tree), -1
    if at == 0 then return false end
    repeat
        local length = at < buffer:len() and one(buffer(at), { cols = {} }, tree) or 0
        at, more = at + length, more + 1
    until length == 0
    if more > 0 then info.cols.info:append(", and " .. more .. " more in its run") end
    return true
end

function am.dissector(buffer, info, tree)
    return heuristic(buffer, info, tree) and buffer:len() or 0
end

am:register_heuristic("udp", heuristic)

-- The gate's datagrams.
local gate = Proto("shunt_gate", "Shunt gate")
local questions = { [1] = "ask", [2] = "cookie", [3] = "answer" }
local refusals = { [0] = "none", [1] = "no station", [2] = "full", [3] = "elsewhere", [4] = "source", [5] = "lost", [6] = "device", [7] = "cancelled", [8] = "unclaimed" }
local g = {
    version = ProtoField.uint32("shunt_gate.version", "Version"),
    kind = ProtoField.uint32("shunt_gate.kind", "Kind", base.DEC, questions),
    nonce = ProtoField.bytes("shunt_gate.nonce", "Nonce"),
    cookie = ProtoField.bytes("shunt_gate.cookie", "Cookie"),
    client = ProtoField.ipv6("shunt_gate.client", "Client"),
    server = ProtoField.ipv6("shunt_gate.server", "Server"),
    client_port = ProtoField.uint16("shunt_gate.client_port", "Client's port"),
    server_port = ProtoField.uint16("shunt_gate.server_port", "Server's port"),
    flags = ProtoField.uint32("shunt_gate.flags", "Flags", base.HEX),
    name = ProtoField.bytes("shunt_gate.name", "Sender's station"),
    tag = ProtoField.uint64("shunt_gate.tag", "Endpoint's tag", base.HEX),
    port = ProtoField.uint16("shunt_gate.port", "Endpoint's port"),
    status = ProtoField.uint32("shunt_gate.status", "Status", base.DEC, refusals),
}
local all = {}
for _, field in pairs(g) do all[#all + 1] = field end
gate.fields = all

local function question(buffer, info, tree)
    if buffer:len() ~= 120 or buffer(0, 8):string() ~= "shuntgat" then return false end
    info.cols.protocol = "shunt-gate"
    local node = tree:add(gate, buffer())
    local whole = { version = { 8, 4 }, kind = { 12, 4 }, client_port = { 80, 2 }, server_port = { 82, 2 }, flags = { 84, 4 }, tag = { 104, 8 }, port = { 112, 2 }, status = { 116, 4 } }
    for name, place in pairs(whole) do node:add_le(g[name], buffer(place[1], place[2])) end
    for name, at in pairs({ nonce = 16, cookie = 32, client = 48, server = 64, name = 88 }) do node:add(g[name], buffer(at, 16)) end
    local kind, status = buffer(12, 4):le_uint(), buffer(116, 4):le_uint()
    local text = (questions[kind] or "?") .. " port " .. buffer(82, 2):le_uint()
    if kind == 3 and status ~= 0 then text = text .. ": " .. (refusals[status] or "?") end
    info.cols.info = text
    return true
end

function gate.dissector(buffer, info, tree)
    return question(buffer, info, tree) and buffer:len() or 0
end

gate:register_heuristic("udp", question)
