-- Runs one command on a key unless a greater fence than the one offered is kept beside the key.
--
-- KEYS[1] the key; KEYS[2] where its fence is kept, in the same slot.
-- ARGV[1] the fence, as 19 digits, so that text compares as the number does (a Lua number is exact only until 2^53);
-- ARGV[2] the command; ARGV[3…] its arguments after the key.
-- Answers {1, the command's reply}; or {0, the greater fence}, and nothing was written.

local kept = redis.call('GET', KEYS[2])
if kept and kept > ARGV[1] then return {0, kept} end
-- The fence first: should the command fail, a later holder was seen all the same.
redis.call('SET', KEYS[2], ARGV[1])
return {1, redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3))}
