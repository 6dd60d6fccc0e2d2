//! The bytes ratelimiter promises to keep: HTTP v1 JSON and the limits file
