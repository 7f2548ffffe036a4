-- A part of perform.lua: how a record is read, shown and written. Says what stores/transitions.py says, in its words.
--
-- A record is one of five strings: 'h' a plain hold: fence and until (doubles of 8 bytes), owner, NUL, info;
-- 'm' a plain mark: fence, until, owner; 'c' a hold that is counted or of a fingerprint: fence, until, refused, owner,
-- NUL, fingerprint, NUL, info; 'd' what became of that: the same, NUL, value; 'g' anything: all fields in the order of
-- `pack`, by cmsgpack. What is listed (reservations, watermarks) is never 'h' or 'm': perform.lua deletes those in
-- passing, and its name would stay in the index.

local REMEMBER, MAX_GONE = 60000000, 128 -- as in rules.py

local call, find, sub = redis.call, string.find, string.sub
local base = string.sub(KEYS[1], 1, -7) -- what stands before '#fence' and before every key of ours

local function blank()
  return {state = 'f', owner = '', fence = 0, ends = 0, delay = 0, opens = 0, kept = 0, attempts = 0, refused = 0,
    fingerprint = '', info = '', value = false, offered = false, waiters = {}, gone = {}}
end

local function is_item(r)
  return r.value and r.state ~= 'd'
end

local function over(r)
  return r.state == 'f' or (r.ends ~= 0 and now >= r.ends)
end

-- The moment from which the record answers nothing more and is treated as absent; nil if there is none.
local function forget_at(r)
  if is_item(r) or (r.state == 'd' and r.ends == 0) then return nil end
  local moment = math.max(r.opens, r.kept) + (#r.waiters > 0 and REMEMBER or 0)
  if r.state == 'h' then moment = r.ends + r.delay + REMEMBER end
  if r.state == 'd' then moment = r.ends end
  for _, displaced in ipairs(r.gone) do moment = math.max(moment, displaced[4]) end
  return moment
end

-- Fills a blank record with what is stored; with 'g' any record, since that sets all fields.
local function parse(packed, r)
  local form = sub(packed, 1, 1)
  if form == 'g' then
    r.state, r.owner, r.fence, r.ends, r.delay, r.opens, r.kept, r.attempts, r.refused, r.fingerprint, r.info,
      r.value, r.offered, r.waiters, r.gone = cmsgpack.unpack(sub(packed, 2))
  elseif form == 'c' or form == 'd' then
    r.fence, r.ends, r.refused = struct.unpack('>ddd', packed, 2)
    local first = find(packed, '\0', 26, true)
    local second = find(packed, '\0', first + 1, true)
    local third = form == 'd' and find(packed, '\0', second + 1, true)
    r.state, r.attempts = form == 'd' and 'd' or 'h', 1
    r.owner, r.fingerprint = sub(packed, 26, first - 1), sub(packed, first + 1, second - 1)
    r.info, r.value = sub(packed, second + 1, third and third - 1 or -1), third and sub(packed, third + 1)
  else
    r.fence, r.ends = struct.unpack('>dd', packed, 2)
    if form == 'h' then
      local nul = find(packed, '\0', 18, true)
      r.state, r.owner, r.info, r.attempts = 'h', sub(packed, 18, nul - 1), sub(packed, nul + 1), 1
    else
      r.state, r.owner = 'd', sub(packed, 18)
    end
  end
end

local function load(name)
  local packed, r = call('GET', name), blank()
  if not packed then return r end
  parse(packed, r)
  local moment = forget_at(r)
  if moment and moment <= now then return blank() end
  r.was_item, r.taker, r.was_listed = is_item(r), r.owner, r.state ~= 'f' -- what `index` must undo, `list` need not do
  return r
end

-- The kind of a record that `list` keeps in the index; false for every other one. Items are listed by `index`.
local function listed_kind(name)
  local letter = sub(name, #base + 1, #base + 1)
  local kind = letter == 'r' and 'reservation' or letter == 'w' and 'watermark'
  return kind and sub(name, #base + 1, #base + #kind + 1) == kind .. '/' and kind
end

-- Keeps the index of listing.lua as the record will say. What cannot be listed is not written, unless it is `in_place`.
local function list(kind, name, r, forgotten, in_place)
  local names, own = base .. '#list:' .. kind, sub(name, #base + #kind + 2)
  if forgotten or r.state == 'f' and r.opens <= now then
    redis.pcall('ZREM', names, own) -- what stays is removed when a scan meets it
  elseif not r.was_listed then
    local added = redis.pcall('ZADD', names, 0, own)
    if type(added) == 'table' and not in_place then error(added) end
  end
end

local function pack(r, kind)
  local plain = #r.waiters == 0 and #r.gone == 0 and not r.offered and r.opens == 0 and r.kept == 0 and r.delay == 0
  local bare = plain and not kind and not r.value and r.refused == 0 and r.fingerprint == ''
  local fits = r.attempts == 1 and r.ends ~= 0 and (r.state == 'h' and not r.value or r.state == 'd' and r.value)
  if plain and not bare and fits
    and not find(r.owner .. r.fingerprint .. r.info, '\0', 1, true) then
    local head = struct.pack('>ddd', r.fence, r.ends, r.refused) .. r.owner .. '\0' .. r.fingerprint .. '\0' .. r.info
    return r.value and 'd' .. head .. '\0' .. r.value or 'c' .. head
  elseif bare and r.state == 'h' and r.attempts == 1 and not find(r.owner, '\0', 1, true) then
    return 'h' .. struct.pack('>dd', r.fence, r.ends) .. r.owner .. '\0' .. r.info
  elseif bare and r.state == 'd' and r.attempts == 0 and r.info == '' and r.ends ~= 0 then
    return 'm' .. struct.pack('>dd', r.fence, r.ends) .. r.owner
  end
  return 'g' .. cmsgpack.pack(r.state, r.owner, r.fence, r.ends, r.delay, r.opens, r.kept, r.attempts, r.refused,
    r.fingerprint, r.info, r.value, r.offered, r.waiters, r.gone)
end

-- Keeps the queue's order, the memory of who took what and the index of listing.lua as the record of an item says.
local function index(name, r)
  local queue, id = string.match(sub(name, #base + 1), '^item/([^/]*)/(.*)$')
  local member = string.format('%016.0f', r.fence) .. id
  local takers, taken = base .. '#takers:' .. queue, r.state == 'h' and r.owner or ''
  if r.was_item and r.taker ~= taken and r.taker ~= '' and call('HGET', takers, r.taker) == id then
    call('HDEL', takers, r.taker)
  end
  if not is_item(r) then
    call('ZREM', base .. '#queue:' .. queue, member)
    call('ZREM', base .. '#list:item', queue .. '/' .. id)
  else
    if not r.was_item then call('ZADD', base .. '#list:item', 0, queue .. '/' .. id) end
    call('ZADD', base .. '#queue:' .. queue, r.state == 'h' and r.ends or r.opens, member)
    if taken ~= '' then call('HSET', takers, taken, id) end
  end
end

local function set(name, packed, px)
  if px then return redis.pcall('SET', name, packed, 'PX', px) end
  return redis.pcall('SET', name, packed)
end

-- Stores the record, or forgets it if it answers nothing more. `in_place`: the new record takes no more room than the
-- old one, so it is written even when memory is full: after a DEL the server lets a script write.
local function save(name, r, in_place)
  local moment, kind = forget_at(r), listed_kind(name)
  local forgotten = moment and moment <= now
  if full and not in_place and not forgotten then error(full) end
  if kind then list(kind, name, r, forgotten, in_place) end
  if forgotten then
    call('DEL', name)
  else
    local packed, px = pack(r, kind), moment and math.floor((moment - now) / 1000) + slack
    local stored = set(name, packed, px)
    if stored.err and in_place then
      call('DEL', name)
      stored = set(name, packed, px)
    end
    if stored.err then error(stored) end
  end
  if r.was_item or is_item(r) then index(name, r) end
end

local function how(r, owner)
  for _, displaced in ipairs(r.gone) do
    if displaced[1] == owner and displaced[4] > now then return displaced[3] end
  end
  return r.state == 'h' and r.owner == owner and over(r) and 'expired' or ''
end

-- `ends`: until when at the latest this owner relied on the key; nil: no longer than now. In the order in which they are
-- forgotten.
local function displace(r, owner, under, why, ends)
  local kept, lost = {}, {owner, under, why, math.max(now, ends or 0) + REMEMBER}
  for _, displaced in ipairs(r.gone) do
    if displaced[4] > now and (displaced[1] ~= owner or owner == '') then kept[#kept + 1] = displaced end
  end
  local place = #kept + 1
  while place > 1 and kept[place - 1][4] > lost[4] do place = place - 1 end
  table.insert(kept, place, lost)
  if #kept > MAX_GONE then table.remove(kept, 1) end
  r.gone = kept
end

-- {state, fence, left (-1: for ever), mine, attempts, refused, waiters, fingerprint, info, value, gone}
local function view(r, asker, with_value)
  local state, left = r.state, r.opens - now
  if state == 'h' then
    left = r.ends - now
    if left <= 0 then state, left = 'f', r.ends + r.delay - now end
  elseif state == 'd' then
    left = r.ends == 0 and -1 or r.ends - now
    if over(r) then state, left = 'f', 0 end
  end
  if state == 'f' and left > 0 then state = 'c' end
  if left < 0 and state ~= 'd' then left = 0 end
  local live, item = state == 'h' or state == 'd', is_item(r)
  local counted = live or r.state == 'h' or item or now < r.kept
  return {state, (live or item) and r.fence or 0, left, live and asker ~= '' and r.owner == asker and 1 or 0,
    counted and r.attempts or 0, counted and r.refused or 0, #r.waiters, live and r.fingerprint or '',
    live and r.info or '', with_value and (state == 'd' or item) and r.value or false, asker ~= '' and how(r, asker) or ''}
end
