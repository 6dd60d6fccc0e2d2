-- Parts of what a lease holds of a limit.

-- The last expiry of parts; 0 if there are none.
local function last_expiry(parts)
  return parts[#parts] or 0
end

-- Calls f(sequence, units, expiry) for each live part.
local function each_live(parts, f)
  for at = 1, #parts, 3 do
    if parts[at + 2] > NOW then
      f(parts[at], parts[at + 1], parts[at + 2])
    end
  end
end

-- When the last of a lease lapses, and until when it can be renewed: its last hold or, without holds, its last reservation.
local function lapses_of(lease)
  local last, last_hold = 0, 0
  for _, need in ipairs(lease[NEEDS]) do
    local expires_at = last_expiry(need[PARTS])
    last = math.max(last, expires_at)
    if need[KIND] == 'c' then
      last_hold = math.max(last_hold, expires_at)
    end
  end
  return last, last_hold > 0 and last_hold or last
end
