local function units_of_debt(debt)
  return debt and debt:sub(2) or '0'
end
