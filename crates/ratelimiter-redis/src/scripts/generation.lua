-- The generation of the definitions.
-- Cost: 1 operation.

is_current('', call('GET', META))
return { 'generation', NOW, meta_generation }
