-- A part of perform.lua, twice: reserves as many fences as the batch can need (a run of marks may use one more than it
-- has keys), above every one before them and not below the clock; with one command unless the counter is ahead of the
-- clock. Sets `fence` to the one before the first; if that fails, `last` (a local of the caller) is the error.
-- <prefix>#born keeps the first fence of all since the store was empty.
last = redis.pcall('SET', KEYS[1], now + 2 * #KEYS, 'GET')
if type(last) ~= 'table' then
  fence = now - 1
  if not last then redis.pcall('SET', string.sub(KEYS[1], 1, -6) .. 'born', now) end
  if last and tonumber(last) >= now then
    fence = tonumber(last)
    redis.call('SET', KEYS[1], fence + 2 * #KEYS)
  end
end
