-- A part of perform.lua: limits and queues.
--
-- base#hits:<key>       sorted set: owner → the moment of its hit
-- base#queue:<queue>    sorted set: fence (16 digits) and id → from when it may be taken; so ties go by fence
-- base#takers:<queue>   hash: owner → the id that it has
-- baseline/<queue>      a record like that of any key: its waiters are the clients that wait for an item
-- records.lua keeps the two before that as the items' records say.

-- {allowed, hits, retry after}
function ops.hit(name, owner, limit, per)
  limit = tonumber(limit)
  if call('ZCOUNT', name, '-inf', now - per) > 0 then -- else full memory refuses: after any write it lets a script add
    call('ZREMRANGEBYSCORE', name, '-inf', now - per)
  end
  local hits = call('ZCARD', name)
  if not call('ZSCORE', name, owner) then
    if hits >= limit then
      local frees = call('ZRANGE', name, hits - limit, hits - limit, 'WITHSCORES')[2]
      return {0, hits, math.max(0, frees + per - now)}
    end
    if full then error(full) end
    call('ZADD', name, now, owner)
    hits = hits + 1
    local px = math.floor(per / 1000) + slack
    if call('PTTL', name) < px then call('PEXPIRE', name, px) end
  end
  return {1, hits, 0}
end

function ops.unhit(name, owner)
  return call('ZREM', name, owner)
end

local function queue_of(name)
  return string.match(sub(name, #base + 1), '^item/([^/]*)/')
end

-- Notifies the first client in the line of a queue that got an item; one that is gone is passed over.
local function call_first(queue)
  local name = base .. 'line/' .. queue
  if call('EXISTS', name) == 0 then return end
  local line, called = load(name), false
  while #line.waiters > 0 and not called do called = notify(table.remove(line.waiters, 1)[1], name) end
  save(name, line, true)
end

function ops.push(name, payload, delay)
  local r = load(name)
  if r.was_item then return 0 end
  r.state, r.owner, r.ends, r.delay, r.fingerprint, r.info = 'f', '', 0, 0, '', ''
  r.value, r.fence, r.attempts, r.offered, r.opens = payload, next_fence(), 0, false, now + delay
  save(name, r)
  if r.opens <= now then call_first(queue_of(name)) end
  return 1
end

local function taken(id, r)
  return {id, r.value, r.attempts, math.max(0, r.ends - now), r.fence}
end

local function may_be_taken(r)
  return r.was_item and (r.state == 'h' and r.ends or r.opens) <= now
end

local function take_item(name, owner, ttl, id)
  local queue = string.sub(name, #base + 8)
  local items = base .. 'item/' .. queue .. '/'
  local mine = call('HGET', base .. '#takers:' .. queue, owner)
  if mine then
    local r = load(items .. mine)
    if r.was_item and r.state == 'h' and r.owner == owner and now < r.ends then return taken(mine, r) end
  end
  local r = id ~= '' and load(items .. id)
  while not r do
    local first = call('ZRANGEBYSCORE', name, '-inf', now, 'LIMIT', 0, 1)[1]
    if not first then return false end
    id = string.sub(first, 17)
    r = load(items .. id)
    if not r.was_item then -- another program deleted its key
      call('ZREM', name, first)
      r = nil
    end
  end
  if not may_be_taken(r) then return false end
  r.state, r.owner, r.ends, r.attempts = 'h', owner, now + ttl, r.attempts + 1
  save(items .. id, r)
  return taken(id, r)
end

-- {id, payload, attempts, left, fence}, or false; for a client that waits {left, -1 if there is no item} instead
function ops.take(name, owner, ttl, id, client)
  local item = take_item(name, owner, ttl, id)
  if item or not client then return item end
  local queue = string.sub(name, #base + 8)
  local line = load(base .. 'line/' .. queue)
  if queue_client(line, client, owner) or line.opens + REMEMBER / 2 < now then
    line.opens = now
    save(base .. 'line/' .. queue, line)
  end
  local first = call('ZRANGE', name, 0, 0, 'WITHSCORES')
  return {first[2] and math.max(0, first[2] - now) or -1}
end

function ops.ack(name, owner, pushed)
  local r = load(name)
  local fence = tonumber(pushed)
  if not r.was_item then return (is_lost(fence) or how(r, owner) == 'resumed') and 0 or 1 end
  if not (r.state == 'h' and r.owner == owner and (fence == 0 or fence == r.fence)) then return 0 end
  r.state, r.value = 'f', false
  if #r.gone > 0 then -- who lost it is remembered
    r.owner, r.ends, r.opens, r.attempts = '', 0, 0, 0
    save(name, r, true)
  else
    call('DEL', name)
    index(name, r)
  end
  return 1
end

function ops.give_back(name, owner, delay, uncounted)
  local r = load(name)
  if not (r.was_item and r.state == 'h' and r.owner == owner) then return 0 end
  if uncounted == '1' then r.attempts = r.attempts - 1 end
  r.state, r.owner, r.ends, r.opens = 'f', '', 0, now + delay
  save(name, r, true)
  if r.opens <= now then call_first(queue_of(name)) end
  return 1
end

-- Without a value: removes the item.
function ops.amend(name, expected, value)
  local r = load(name)
  if not r.was_item then return 0 end
  if r.value == value then return 1 end
  if r.value ~= expected or not (value or over(r)) then return 0 end
  r.value = value or false
  if not value then r.state, r.owner, r.ends, r.opens, r.attempts = 'f', '', 0, 0, 0 end
  save(name, r, not value)
  return 1
end

function ops.count(name)
  return call('ZCARD', name)
end
