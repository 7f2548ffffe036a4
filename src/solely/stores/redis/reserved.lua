-- A part of perform.lua: puts a new reservation into the index of listing.lua. What cannot be listed is not granted.
-- One in 16 looks at 32 names, from another place each time, and removes those whose records have expired: two looks per
-- new name keep the index at no more than about twice as many names as there are records.
local index = string.sub(KEYS[1], 1, -6) .. 'list:reservation'
local listed = redis.pcall('ZADD', index, 0, string.sub(name, #KEYS[1] + 7)) -- what follows base and 'reservation/'
if type(listed) == 'table' then
  redis.pcall('DEL', name)
  reply = listed
elseif fence % 16 == 0 then
  local records = string.sub(KEYS[1], 1, -7) .. 'reservation/'
  local first = fence * 2 % redis.call('ZCARD', index) -- fences are the clock's µs, and the next 16 lead 32 names on
  for _, member in ipairs(redis.pcall('ZRANGE', index, first, first + 31)) do
    if redis.pcall('EXISTS', records .. member) == 0 then redis.pcall('ZREM', index, member) end
  end
end
