-- What a denial says. Needs `collect`.

local function is_paused(limit)
  return not limit.known.is_shadow and limit.known.target == 0
end

-- The most reservations that a hint looks at.
local SEARCH_MAX = 256

-- When so many units will have expired; nil if there are not so many. Beyond SEARCH_MAX reservations it is the moment of the last one
-- that was looked at.
-- Cost: 1 operation for each 32 reservations.
local function freed_at(limit, units)
  local last
  for from = 0, SEARCH_MAX - 1, 32 do
    local found = call('ZRANGE', limit.live, from, from + 31, 'WITHSCORES')
    for at = 1, #found, 2 do
      units, last = units - units_of(found[at]), tonumber(found[at + 1])
      if units <= 0 then
        return last
      end
    end
    if #found < 64 then
      return nil
    end
  end
  return last
end

-- What the server needs for the hint of a limit without room: the limit, its streak, whether an open lease may free units, and the moment
-- when enough will have expired, or -1.
local function hint_of(name, limit, units)
  local moment = -1
  if limit.known.kind ~= 'c' and units > limit.available then
    moment = freed_at(limit, units - limit.available) or -1
  end
  return { name, limit.streak, limit.open > 0 and 1 or 0, moment }
end

-- When a waiter for these units may fit if nobody completes before; nil if that is not known.
local function lapse_of(limit, units)
  local needed = limit.used + units - limit.known.target
  return needed >= 0 and freed_at(limit, needed) or nil
end
