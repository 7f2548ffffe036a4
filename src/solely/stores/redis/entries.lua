-- A part of perform.lua: every op on an entry, in every case. Says what stores/transitions.py says, in its words.

local OFFER, MAX_WAITERS = 20000, 1000 -- as in rules.py

ops = {}

local function next_fence()
  if not fence then
    local last = full
    if not full then
      --@ fences.lua
    end
    if not fence then error(last) end
  end
  fence = fence + 1
  return fence
end

-- True unless it is certain that nobody received it.
local function notify(client, name)
  local channel = string.gsub(base, '{b%d+}$', '') .. 'wake:' .. client
  return redis.call('PUBLISH', channel, string.sub(name, #base + 1)) > 0 or not skips
end

local function offer(r, name)
  r.offered, r.opens = false, 0
  while #r.waiters > 0 and not r.offered do
    local waiter = table.remove(r.waiters, 1)
    if notify(waiter[1], name) then r.offered, r.opens = waiter, now + OFFER end
  end
end

local function set_free(r)
  r.state, r.owner, r.ends, r.delay, r.fingerprint, r.info = 'f', '', 0, 0, '', ''
end

local function without(waiters, field, gone)
  local kept = {}
  for _, waiter in ipairs(waiters) do
    if waiter[field] ~= gone then kept[#kept + 1] = waiter end
  end
  return kept
end

local function queue_client(r, client, owner)
  for _, waiter in ipairs(r.waiters) do
    if waiter[1] == client then
      local moved = waiter[2] ~= owner
      waiter[2] = owner
      return moved
    end
  end
  if #r.waiters >= MAX_WAITERS then return false end
  r.waiters[#r.waiters + 1] = {client, owner}
  return true
end

function ops.acquire(name, owner, ttl, info, client, delay, fingerprint, counted, value)
  local r = load(name)
  counted, value = counted == '1', value == '1'
  local live = not over(r)
  if how(r, owner) ~= '' or (live and r.owner == owner) then return view(r, owner, value) end
  local closed = r.state == 'f' and now < r.opens
    and not (r.offered and client ~= '' and r.offered[1] == client)
    or r.state == 'h' and not live and now < r.ends + r.delay
  if live or closed then
    local changed = counted
    if counted then r.refused = r.refused + 1 end
    if client ~= '' and r.state ~= 'd' then changed = queue_client(r, client, owner) or changed end
    if changed then save(name, r) end
    return view(r, owner, value)
  end
  if r.state == 'h' then
    displace(r, r.owner, r.fence, 'expired')
  elseif r.state == 'd' or now >= r.kept then
    r.attempts, r.refused = 0, 0
  end
  r.state, r.owner, r.fence, r.ends, r.delay = 'h', owner, next_fence(), now + ttl, tonumber(delay)
  r.attempts, r.fingerprint, r.info, r.value = r.attempts + 1, fingerprint, info, false
  r.offered, r.opens, r.kept, r.waiters = false, 0, 0, without(r.waiters, 1, client)
  save(name, r)
  return view(r, owner, value)
end

-- With a successor: resume, in this function since each function that is made costs every call of the script.
function ops.renew(name, owner, ttl, successor, info)
  local r = load(name)
  if r.state == 'h' and r.owner == owner and not over(r) then
    if not successor then
      r.ends = math.max(r.ends, now + ttl)
      save(name, r, true)
    elseif successor ~= owner and how(r, successor) == '' then
      displace(r, owner, r.fence, 'resumed', r.ends)
      r.owner, r.ends = successor, now + ttl
      if not is_item(r) then r.fence, r.info = next_fence(), info end
      save(name, r)
    end
  end
  return view(r, successor or owner, successor)
end

function ops.finish(name, owner, value, keep)
  local r = load(name)
  if r.state == 'h' and r.owner == owner then
    r.state, r.value, r.delay, r.ends = 'd', value, 0, now + keep
    local waiters = r.waiters
    r.waiters = {}
    save(name, r)
    for _, waiter in ipairs(waiters) do notify(waiter[1], name) end
  end
  return view(r, owner, true)
end

-- True if what was granted under this fence is older than the store's data; a store that was made by an older version
-- knows no beginning.
local function is_lost(granted)
  if granted == 0 then return false end
  if not call('GET', KEYS[1]) then return true end
  local born = call('GET', base .. '#born')
  return born and tonumber(born) > granted
end

local function was_held(r, owner, granted)
  for _, displaced in ipairs(r.gone) do
    if displaced[1] == owner and displaced[2] == granted then return true end
  end
  return false
end

-- 1 released, 2 expired, 3 cleared, 4 absent, 5 lost, 6 resumed
function ops.release(name, owner, revoke, delay, keep, granted)
  local r = load(name)
  local why = how(r, owner)
  granted = tonumber(granted)
  local here = r.owner == owner and r.state ~= 'f' and (granted == 0 or granted == r.fence)
  local under = r.state == 'h' and r.owner == owner and r.fence or 0
  if r.state == 'h' and r.owner == owner then
    if why ~= '' then
      displace(r, owner, r.fence, 'expired')
      r.opens, r.kept = r.ends + r.delay, now + REMEMBER
    else
      r.opens, r.kept = now + delay, now + keep
    end
    local closed = r.opens > now
    set_free(r)
    r.value = false
    if not closed then offer(r, name) end
  elseif r.state == 'd' and r.owner == owner and not r.value then
    set_free(r)
  elseif r.offered and r.offered[2] == owner and now < r.opens then
    offer(r, name)
  end
  r.waiters = without(r.waiters, 2, owner)
  if revoke == '1' and why == '' then displace(r, owner, under, 'revoked') end
  save(name, r, true)
  if why ~= '' and why ~= 'revoked' then return why == 'expired' and 2 or why == 'cleared' and 3 or 6 end
  if here or granted == 0 or why ~= '' and was_held(r, owner, granted) then return 1 end
  return is_lost(granted) and 5 or 4
end

function ops.mark(name, owner, ttl, extend)
  local r = load(name)
  if how(r, owner) ~= '' then return 0 end
  if not over(r) then
    if extend == '1' and r.state == 'd' and not r.value and r.ends < now + ttl then
      r.ends = now + ttl
      save(name, r, true)
    end
    return r.state == 'd' and r.owner == owner and 1 or 0
  end
  if r.state == 'h' then displace(r, r.owner, r.fence, 'expired') end
  set_free(r)
  r.state, r.owner, r.fence, r.ends, r.value = 'd', owner, next_fence(), now + ttl, false
  r.attempts, r.refused, r.offered, r.opens, r.kept = 0, 0, false, 0, 0
  save(name, r)
  return 1
end

function ops.read(name)
  return view(load(name), '', true)
end

function ops.clear(name, fenced)
  local r = load(name)
  fenced = tonumber(fenced)
  for _, displaced in ipairs(r.gone) do
    if displaced[2] == fenced and displaced[3] == 'cleared' and displaced[4] > now then return 1 end
  end
  if r.fence ~= fenced or not (is_item(r) or not over(r)) then return 0 end
  displace(r, r.owner, r.fence, 'cleared')
  set_free(r)
  r.value, r.attempts, r.refused, r.kept = false, 0, 0, 0
  offer(r, name)
  save(name, r, true)
  return 1
end

-- As bytes: Lua's own comparison follows the server's locale.
local function at_least(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then return a > b end
  end
  return #one >= #other
end

function ops.advance(name, value)
  local r = load(name)
  if not (r.state == 'd' and r.value and at_least(r.value, value)) then
    set_free(r)
    r.state, r.value, r.fence, r.ends = 'd', value, next_fence(), 0
    save(name, r)
  end
  return view(r, '', true)
end
