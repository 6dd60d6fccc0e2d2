-- Whole numbers of more than 53 bits, in decimal.

-- The sum of two whole numbers in decimal, of any size.
local function plus(a, b)
  local sum, carry = '', 0
  while #a > 0 or #b > 0 or carry > 0 do
    local part = (tonumber(a:sub(-15)) or 0) + (tonumber(b:sub(-15)) or 0) + carry
    carry = math.floor(part / 1e15)
    sum = string.format('%015.0f', part - carry * 1e15) .. sum
    a, b = a:sub(1, -16), b:sub(1, -16)
  end
  return (sum:gsub('^0+(%d)', '%1'))
end

-- A whole number of at most 30 digits, in decimal, minus a smaller one.
local function minus(a, number)
  local low, high = tonumber(a:sub(-15)), tonumber(a:sub(1, -16)) or 0
  local number_high = math.floor(number / 1e15)
  low, high = low - (number - number_high * 1e15), high - number_high
  if low < 0 then
    low, high = low + 1e15, high - 1
  end
  if high == 0 then
    return text(low)
  end
  return text(high) .. string.format('%015.0f', low)
end
