-- A part of perform.lua: pages of the index, and how it is completed.
--
-- base#list:<kind>   sorted set, all scores 0: the name of every record of this kind that a scan may show. The script that
--                    writes a record keeps it: `list` and `index` in records.lua, reserved.lua. A record that expires
--                    leaves its name behind, until a page or a sample meets it and the record is gone.
-- base#listed        hash: `first`, when the index was complete for the first time; `due`, when records that an older
--                    version wrote meanwhile are to be added

local MOST = 128 -- records that a page may look at: under a millisecond, as MAX_BATCH in ops.py
local AGAIN = 60000000 -- µs until the index is completed again; from then on whenever its age has doubled

-- {where it ended (false: at the end), name, view, name, view, …}, or 0 if the index must be completed first
function ops.list(name, low, high, count)
  local due = call('HGET', base .. '#listed', 'due')
  if not due or tonumber(due) <= now then return 0 end
  local records, page, left = base .. sub(name, #base + 7) .. '/', {false}, MOST
  count = tonumber(count)
  while count > 0 and left > 0 do
    local asked = math.min(count, left)
    local members = call('ZRANGEBYLEX', name, low, high, 'LIMIT', 0, asked)
    for _, member in ipairs(members) do
      local shown = view(load(records .. member), '', true)
      if shown[1] ~= 'f' or shown[2] ~= 0 then
        page[#page + 1], page[#page + 2], count = member, shown, count - 1
      elseif call('EXISTS', records .. member) == 0 then
        redis.pcall('ZREM', name, member) -- a server that refuses writes still lists
      end
      page[1], low = member, '(' .. member
    end
    left = left - asked
    if #members < asked then
      page[1], left = false, 0
    end
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
