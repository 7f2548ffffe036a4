-- Performs a batch of ops in one step on the server's clock; each op stands or fails alone.
--
-- KEYS[1] the fence counter, <prefix>#fence; KEYS[2…] one key per op, in their order.
-- ARGV[1] '' (one server), 'c' (a cluster), or now in µs (the injected clock of tests); then per op a code and its
-- arguments, durations in µs:
--   a owner ttl info client    an Acquire of nothing more
--   A owner ttl info client fingerprint counted value    an Acquire without a delay
--   R …                        the same for a reservation, which is listed (reserved.lua)
--   F owner value keep         a Finish
--   r owner fence              a Release of nothing more
--   m owner ttl count          a run of Marks on the next `count` keys, of which none extends
--   name count arguments…      any op: the name and the arguments of its function in entries.lua, queues.lua, listing.lua
-- Answers one reply per op: what that function answers; a fence alone for a fresh hold; {done, fence, left, refused,
-- rest} for a plain refusal of A and {fence, refused, rest} for a plain Finish, whose rest is what the record holds behind
-- the owner: fingerprint, info and, of what is done, the value if it was asked for, with NULs between them; for a run of
-- marks a string of 1 (first) and 0 (seen), or an array if some failed. An error in the place of what failed.
--
-- Times are µs, exact in a Lua number until 2^53 (the year 2255).

local now = ARGV[1]
local skips = now == '' -- a PUBLISH that reaches nobody shows that the waiter is gone (a cluster counts one node only)
local slack = 2 -- ms that records outlive their use, since PX rounds down
if skips or now == 'c' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(now)
  slack = 86400000 -- a day: the injected clock may lag behind the server's for as long as a test runs
end

-- Why nothing may be added, such as full memory. It is asked for before the first write, after which the server lets a
-- script add; a lone op finds out by itself. The command changes nothing.
local full = #KEYS > 2 and redis.pcall('SETRANGE', KEYS[1], 0, '')
full = type(full) == 'table' and full

local fence -- the last one given; none before the first is needed
local replies, ops = {}, nil
local arg, key = 2, 1 -- the code that is next, and the key that was last
while arg <= #ARGV do
  local code, one, two, three = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3]
  local name, width, keys = KEYS[key + 1], 3, 1
  local ok, reply, stored, others = true, nil, nil, nil

  -- The plain cases: a free key, a hold or a result without waiters or history, marks. They make no function on their
  -- way, since that would cost as much as they do. What is not plain is left to the ops below, and so is every error.
  if not fence and (code == 'a' or code == 'A' or code == 'R' or code == 'm') then
    local last = full
    if not full then
      --@ fences.lua
    end
    if not fence and code == 'm' then reply = last end
  end
  if code == 'a' then
    width = 5
    if fence then
      fence = fence + 1
      stored = redis.pcall('SET', name, 'h' .. struct.pack('>dd', fence, now + two) .. one .. '\0' .. three,
        'NX', 'GET', 'PX', math.floor(two / 1000) + 60000 + slack)
      if not stored then reply = fence end
    end
  elseif code == 'A' or code == 'R' then
    width = 8
    local client, print, counted = ARGV[arg + 4], ARGV[arg + 5], ARGV[arg + 6] == '1'
    if fence then
      fence = fence + 1
      stored = redis.pcall('SET', name,
        'c' .. struct.pack('>ddd', fence, now + two, 0) .. one .. '\0' .. print .. '\0' .. three,
        'NX', 'GET', 'PX', math.floor(two / 1000) + 60000 + slack)
      if not stored then
        reply = fence
        if code == 'R' then
          --@ reserved.lua
        end
      elseif type(stored) == 'string' then
        local form, under, ends, refused = string.sub(stored, 1, 1), nil, nil, nil
        if form == 'd' or form == 'c' and client == '' then
          under, ends, refused = struct.unpack('>ddd', stored, 2)
        end
        if ends and ends > now and string.sub(stored, 26, 26 + #one) ~= one .. '\0' then
          local set = counted and redis.pcall('SET', name,
            form .. struct.pack('>ddd', under, ends, refused + 1) .. string.sub(stored, 26), 'KEEPTTL')
          if not (set and set.err) then
            local tail = string.find(stored, '\0', 26, true) + 1
            refused = counted and refused + 1 or refused
            if form == 'd' and ARGV[arg + 7] ~= '1' then
              local info = string.find(stored, '\0', tail, true) + 1
              local last = string.find(stored, '\0', info, true) - 1
              reply = {1, under, ends - now, refused, string.sub(stored, tail, last)}
            else
              reply = {form == 'd' and 1 or 0, under, ends - now, refused, string.sub(stored, tail)}
            end
          end
        end
      end
    end
  elseif code == 'F' then
    width = 4
    stored = redis.pcall('GET', name)
    if type(stored) == 'string' and string.sub(stored, 1, 1) == 'c'
      and string.sub(stored, 26, 26 + #one) == one .. '\0' then
      local under, ends, refused = struct.unpack('>ddd', stored, 2)
      local known = ends + 60000000 > now -- REMEMBER: then it is as if it had never been
      local set = known and redis.pcall('SET', name,
        'd' .. struct.pack('>ddd', under, now + three, refused) .. string.sub(stored, 26) .. '\0' .. two,
        'PX', math.floor(three / 1000) + slack)
      if set and not set.err then
        reply = {under, refused, string.sub(stored, string.find(stored, '\0', 26, true) + 1)}
      end
    end
  elseif code == 'r' then
    stored = redis.pcall('GET', name)
    if type(stored) == 'string' and string.sub(stored, 1, 1) == 'h' and string.sub(stored, 18, 18 + #one) == one .. '\0'
    then
      local under, ends = struct.unpack('>dd', stored, 2)
      if ends > now and (under == tonumber(two) or two == '0') then reply = redis.pcall('DEL', name) end
    end
  elseif code == 'm' then
    width, keys = 4, tonumber(three)
    if fence then
      -- One record for the whole run, its fence too: fences order what happens to one key.
      fence = fence + 1
      local try, keys_of, firsts, whole = redis.pcall, KEYS, {}, true
      local record, px = 'm' .. struct.pack('>dd', fence, now + two) .. one, string.format('%d', two / 1000 + slack)
      for i = 1, keys do
        local before = try('SET', keys_of[key + i], record, 'NX', 'GET', 'PX', px)
        firsts[i] = 1
        if before then
          if type(before) == 'table' then
            firsts[i], whole = before, false
          elseif string.sub(before, 1, 1) ~= 'm' or struct.unpack('>d', before, 10) <= now then
            others = others or {}
            others[#others + 1] = i
          elseif string.sub(before, 18) ~= one then
            firsts[i] = 0
          end
        end
      end
      reply = whole and not others and table.concat(firsts) or firsts
    end
  end

  if reply == nil or others then
    if not ops then
      --@ records.lua
      --@ entries.lua
      --@ queues.lua
      if #code > 1 and not ops[code] then -- ops on the index are never in one batch with others
        --@ listing.lua
      end
    end
    if code == 'a' then
      ok, reply = pcall(ops.acquire, name, one, two, three, ARGV[arg + 4], 0, '', '', '')
    elseif code == 'A' or code == 'R' then
      ok, reply = pcall(ops.acquire, name, one, two, three, ARGV[arg + 4], 0, unpack(ARGV, arg + 5, arg + 7))
    elseif code == 'F' then
      ok, reply = pcall(ops.finish, name, one, two, three)
    elseif code == 'r' then
      ok, reply = pcall(ops.release, name, one, '', 0, 0, two)
    elseif code == 'm' then
      for _, i in ipairs(others) do
        local answered, first = pcall(ops.mark, KEYS[key + i], one, two)
        reply[i] = (answered or type(first) == 'table') and first or {err = first}
      end
    else
      width = 2 + one
      ok, reply = pcall(ops[code], name, unpack(ARGV, arg + 2, arg + 1 + one))
    end
  end
  if not ok and type(reply) ~= 'table' then reply = {err = reply} end
  replies[#replies + 1] = reply
  arg, key = arg + width, key + keys
end
return replies
