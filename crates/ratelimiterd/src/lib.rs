//! The ratelimiter server and its command line
