//! What a call used, in tokens.

/// The tokens of one call. Each token of the input is counted in one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Input that was neither read from the provider's cache nor written to it.
    pub input: u64,
    /// Input that was read from the cache.
    pub cache_read: u64,
    /// Input that was written to the cache for some minutes.
    pub cache_write: u64,
    /// Input that was written to the cache for an hour.
    pub cache_write_1h: u64,
    /// Output, with hidden reasoning.
    pub output: u64,
    /// Calls of tools that the provider runs, such as a web search.
    pub server_tool_calls: u64,
}

impl Usage {
    /// All input, with what was read from the cache and written to it.
    pub const fn all_input(&self) -> u64 {
        self.uncached_input().saturating_add(self.cache_read)
    }

    /// The input without what was read from the cache.
    pub const fn uncached_input(&self) -> u64 {
        self.input.saturating_add(self.cache_write).saturating_add(self.cache_write_1h)
    }

    /// Input and output.
    pub const fn all(&self) -> u64 {
        self.all_input().saturating_add(self.output)
    }
}
