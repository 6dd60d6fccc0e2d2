//! For programs that make LLM calls: the limiter in process or over HTTP
