-- A part of perform.lua: pages of the index, and how it is completed.
--
-- base#list:<kind>   sorted set, all scores 0: the name of every record of this kind that a scan may show. The script that
--                    writes a record keeps it: `list` and `index` in records.lua, reserved.lua. A record that expires
--                    leaves its name behind, until a page or a sample meets it and the record is gone.
-- base#listed        hash: `first`, when the index was complete for the first time; `due`, when records that an older
--                    version wrote meanwhile are to be added

local MOST = 128 -- records that a page may look at: under a millisecond, as MAX_BATCH in ops.py
local AGAIN = 60000000 -- µs until the index is completed again; from then on whenever its age has doubled

local scratch = blank()

-- What a page says of a record: its bytes if it is a plain hold or result, for the client to read, else a view; nil if a
-- scan shows nothing of it. Makes as few tables as can be: in a server with much data they are slow.
local function shown(packed)
  local form = sub(packed, 1, 1)
  if form == 'c' or form == 'd' then
    return struct.unpack('>d', packed, 10) > now and packed or nil
  end
  local r = form == 'g' and scratch or blank()
  parse(packed, r)
  local seen = view(r, '', true)
  return (seen[1] ~= 'f' or seen[2] ~= 0) and seen or nil
end

-- {now, where it ended (false: at the end), name, what is shown, name, what is shown, …}, or 0 if the index must be
-- completed first
function ops.list(name, low, high, count)
  local due = call('HGET', base .. '#listed', 'due')
  if not due or tonumber(due) <= now then return 0 end
  local records, page, left = base .. sub(name, #base + 7) .. '/', {now, false}, MOST
  count = tonumber(count)
  while count > 0 and left > 0 do
    local asked = math.min(count, left)
    local members = call('ZRANGEBYLEX', name, low, high, 'LIMIT', 0, asked)
    for _, member in ipairs(members) do
      local packed = call('GET', records .. member)
      local entry = packed and shown(packed)
      if entry then
        page[#page + 1], page[#page + 2], count = member, entry, count - 1
      elseif not packed then
        redis.pcall('ZREM', name, member) -- a server that refuses writes still lists
      end
    end
    left = left - asked
    page[2] = #members == asked and members[asked]
    if not page[2] then break end
    low = '(' .. page[2]
  end
  return page
end

-- Adds a record to the index if it exists.
function ops.enlist(name)
  local kind, rest = string.match(sub(name, #base + 1), '^(%l+)/(.*)$')
  return call('EXISTS', name) == 1 and call('ZADD', base .. '#list:' .. kind, 0, rest) or 0
end

-- All records that there were have been added.
function ops.complete(name)
  local first = call('HGET', name, 'first') or now
  return call('HSET', name, 'first', first, 'due', now + math.max(AGAIN, now - first))
end
