-- A part of perform.lua, twice: reserves as many fences as the batch can need (a run of marks may use one more than it
-- has keys), above every one before them and not below the clock; with one command unless the counter is ahead of the
-- clock. Sets `fence` to the one before the first; if that fails, `last` is the error.
local last = redis.pcall('SET', KEYS[1], now + 2 * #KEYS, 'GET')
if type(last) ~= 'table' then
  fence = now - 1
  if last and tonumber(last) >= now then
    fence = tonumber(last)
    redis.call('SET', KEYS[1], fence + 2 * #KEYS)
  end
end
