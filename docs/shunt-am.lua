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
-- And whoever looks at calls of shunt-rpc says that (-o shunt_am.calls:TRUE): handlers, flags, statuses of crates/rpc/README.md.
am.prefs.calls = Pref.bool("Messages are calls of shunt-rpc", false, "Shows calls and answers, and which belong together")
local statuses = {
    [0] = "results", [1] = "no such procedure", [2] = "bad arguments", [3] = "deadline passed", [4] = "taken back",
    [5] = "results found no room", [6] = "panicked", [7] = "fault of the application", [8] = "broke the format",
}
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
    slot = ProtoField.uint16("shunt_am.rpc.slot", "Place"),
    generation = ProtoField.uint16("shunt_am.rpc.generation", "Generation"),
    procedure = ProtoField.uint16("shunt_am.rpc.procedure", "Procedure"),
    status = ProtoField.uint16("shunt_am.rpc.status", "Status", base.DEC, statuses),
    flags = ProtoField.uint16("shunt_am.rpc.flags", "Flags", base.HEX),
    program = ProtoField.uint32("shunt_am.rpc.program", "Program", base.HEX),
    version = ProtoField.uint32("shunt_am.rpc.version", "Version"),
    answered = ProtoField.framenum("shunt_am.rpc.answered", "Answered in", base.NONE, frametype.RESPONSE),
    asked = ProtoField.framenum("shunt_am.rpc.asked", "Call in", base.NONE, frametype.REQUEST),
}
local list = {}
for _, field in pairs(f) do list[#list + 1] = field end
am.fields = list

-- Bindings, by the address, port and tag of the caller's endpoint and of the server's, as the two records tell them; calls, by their
-- endpoints and names, each with its frame, the frame of its answer, and its procedure.
local bindings, halves, calls = {}, {}, {}
function am.init() bindings, halves, calls = {}, {}, {} end

local function ends(info, turned)
    local from, to = tostring(info.src) .. ":" .. info.src_port, tostring(info.dst) .. ":" .. info.dst_port
    return turned and to .. " " .. from or from .. " " .. to
end

local function named(procedure, bound)
    return bound and string.format("program 0x%x version %d procedure %d", bound.program, bound.version, procedure) or "procedure " .. procedure
end

-- A call, or an answer, of which the first word is there: what it is.
local function call(range, info, tree, task, handler)
    if not info.number or not (task == 1 and (handler == 1 or handler == 2) or task == 2 and handler == 4) then return nil end
    local code, flags, answer = range(4, 2):le_uint(), range(6, 2):le_uint(), task == 2
    local pair = ends(info, answer)
    local key = pair .. " " .. tostring(range(0, 4):le_uint())
    tree:add_le(f.slot, range(0, 2))
    tree:add_le(f.generation, range(2, 2))
    if handler == 2 then return "take back the call of place " .. range(0, 2):le_uint() end
    tree:add_le(answer and f.status or f.procedure, range(4, 2))
    tree:add_le(f.flags, range(6, 2))
    -- A name comes again after 65,536 calls of its place: the last call before an answer is meant.
    local all = calls[key] or {}
    calls[key] = all
    local own
    for _, one in ipairs(all) do
        if one.frame <= info.number and (answer or one.frame == info.number) then own = one end
    end
    if not answer and not own and not info.visited then
        own = { frame = info.number, procedure = code }
        all[#all + 1] = own
    end
    local bound = bindings[pair]
    if bound then
        tree:add(f.program, bound.program):set_generated()
        tree:add(f.version, bound.version):set_generated()
    end
    if not answer then
        if own and own.answered then tree:add(f.answered, own.answered):set_generated() end
        return "call of " .. named(code, bound)
    end
    local text = "answer: " .. (statuses[code] or "?")
    if own then
        own.answered = own.answered or info.number
        tree:add(f.asked, own.frame):set_generated()
        tree:add(f.procedure, own.procedure):set_generated()
        text = "answer of " .. named(own.procedure, bound) .. ": " .. (statuses[code] or "?")
    end
    return text
end

local function messages(range, info, tree)
    local at, names = 0, {}
    while at + 8 <= range:len() do
        local words, length = range(at + 2, 1):uint(), range(at + 4, 4):le_uint()
        local size = 8 + words * 8 + length
        if at + size > range:len() then break end
        local task, handler = range(at, 1):uint(), range(at + 1, 1):uint()
        local name = tasks[task] or "?"
        if am.prefs.streams and (task == 1 or task == 2) and streams[handler] then name = streams[handler] end
        local node = tree:add(am, range(at, size), "Message: " .. name)
        if am.prefs.calls and words > 0 then name = call(range(at + 8, 8), info, node, task, handler) or name end
        names[#names + 1] = name
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
            text = text .. ": " .. messages(range(40), info, node)
        elseif kind == 3 then
            for at = 40, range:len() - 8, 8 do node:add_le(f.map, range(at, 8)) end
        end
    elseif kind == 6 and range:len() > 16 then
        text = text .. ": " .. messages(range(16), info, node)
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

-- The two records of a binding (docs/WIRE.md, calls), 256 bytes each over TCP: from which calls have program and version.
local binding = Proto("shunt_rpc", "Shunt binding of calls")
local codes = {
    [0] = "bound", [1] = "other versions", [2] = "no such program", [3] = "denied", [4] = "full", [5] = "another protocol", [6] = "list",
    [7] = "watching", [8] = "no end of the device",
}
local purposes = { [0] = "call", [1] = "list", [2] = "describe", [3] = "watch" }
local b = {
    program = ProtoField.uint32("shunt_rpc.program", "Program", base.HEX),
    lowest = ProtoField.uint32("shunt_rpc.lowest", "Lowest version"),
    highest = ProtoField.uint32("shunt_rpc.highest", "Highest version"),
    version = ProtoField.uint32("shunt_rpc.version", "Version"),
    window = ProtoField.uint64("shunt_rpc.window", "Window (bytes)"),
    purpose = ProtoField.uint32("shunt_rpc.purpose", "Purpose", base.DEC, purposes),
    code = ProtoField.uint32("shunt_rpc.code", "Code", base.DEC, codes),
}
local parts = {}
for _, field in pairs(b) do parts[#parts + 1] = field end
binding.fields = parts

-- The port of the endpoint on a card: its address is a sockaddr of IPv4 or IPv6 (ip(7)), which has it at the same place.
local function port_of(buffer)
    return buffer(50, 2):uint()
end

local function record(buffer, info, tree)
    if buffer:len() < 256 or buffer(0, 8):string() ~= "shuntRPC" then return false end
    info.cols.protocol = "shunt-rpc"
    local node, from = tree:add(binding, buffer(0, 256)), tostring(info.src) .. ":" .. info.src_port
    local to = tostring(info.dst) .. ":" .. info.dst_port
    local card = tostring(info.src) .. ":" .. port_of(buffer)
    local waiting = halves[to .. " " .. from]
    -- The caller speaks first, and its record has a program where the server's has a version.
    if waiting and waiting.frame < info.number then
        local code, version = buffer(12, 4):le_uint(), buffer(16, 4):le_uint()
        node:add_le(b.code, buffer(12, 4))
        if code == 0 then
            node:add_le(b.version, buffer(16, 4))
            bindings[waiting.card .. " " .. card] = { program = waiting.program, version = version }
        end
        info.cols.info = "answer to a binding: " .. (codes[code] or "?") .. (code == 0 and ", version " .. version or "")
        return true
    end
    node:add_le(b.purpose, buffer(12, 4))
    node:add_le(b.program, buffer(16, 4))
    node:add_le(b.lowest, buffer(24, 4))
    node:add_le(b.highest, buffer(28, 4))
    node:add_le(b.window, buffer(32, 8))
    halves[from .. " " .. to] = { frame = info.number, card = card, program = buffer(16, 4):le_uint() }
    info.cols.info = string.format("bind program 0x%x, versions %d to %d", buffer(16, 4):le_uint(), buffer(24, 4):le_uint(), buffer(28, 4):le_uint())
    return true
end

binding.dissector = function(buffer, info, tree) return record(buffer, info, tree) and buffer:len() or 0 end
binding:register_heuristic("tcp", record)
