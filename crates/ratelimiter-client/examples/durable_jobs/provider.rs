//! The simulated providers behind a socket, so that they count the calls of all processes, including killed ones.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use ratelimiter_client::JobError;
use ratelimiter_client::jobs::{HandlerError, JobCall};
use simulated_provider::{SimulatedCall, SimulatedProvider};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The providers, by name, and how often each job called them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Providers {
    by_name: HashMap<&'static str, SimulatedProvider>,
    calls: Arc<Mutex<HashMap<String, u32>>>,
}

impl Providers {
    pub(crate) fn with(mut self, name: &'static str, provider: SimulatedProvider) -> Self {
        self.by_name.insert(name, provider);
        self
    }

    pub(crate) fn get(&self, name: &str) -> &SimulatedProvider {
        &self.by_name[name]
    }

    /// The number of admitted calls.
    pub(crate) fn call_count(&self) -> u64 {
        self.by_name.values().map(|provider| provider.metrics().calls).sum()
    }

    /// The number of jobs that called more than once.
    pub(crate) fn repeated_count(&self) -> usize {
        let calls = self.calls.lock().expect("no panic with the lock held");
        calls.values().filter(|count| **count > 1).count()
    }

    /// Serves calls on a free port until the runtime ends.
    pub(crate) async fn serve(&self) -> std::io::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let providers = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let providers = providers.clone();
                // An admitted call continues even if the caller dies.
                tokio::spawn(async move { providers.answer(stream).await });
            }
        });
        Ok(address)
    }

    async fn answer(&self, mut stream: TcpStream) -> Result<(), JobError> {
        let mut line = String::new();
        BufReader::new(&mut stream).read_line(&mut line).await?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, job, prompt_tokens, output_tokens, max_output_tokens] = words[..] else {
            return Err("a call has five words".into());
        };
        let call = SimulatedCall {
            prompt_tokens: prompt_tokens.parse()?,
            output_tokens: output_tokens.parse()?,
            max_output_tokens: max_output_tokens.parse()?,
        };
        let calls =
            self.calls.lock().map(|mut calls| *calls.entry(job.to_owned()).or_default() += 1);
        calls.expect("no panic with the lock held");
        let answer = match self.get(name).call(call).await {
            Ok(tokens) => format!("ok {tokens}\n"),
            Err(error) => format!("{error}\n"),
        };
        Ok(stream.write_all(answer.as_bytes()).await?)
    }
}

/// Calls a provider. Returns the tokens used.
pub(crate) async fn call(address: SocketAddr, call: &JobCall) -> Result<u64, HandlerError> {
    let request = call.job.request();
    let line = format!(
        "{} {} {} {} {}\n",
        request.provider,
        call.id,
        request.prompt.len(),
        call.job.context(),
        request.max_output_tokens
    );
    let mut stream = TcpStream::connect(address).await.map_err(HandlerError::retry)?;
    stream.write_all(line.as_bytes()).await.map_err(HandlerError::retry)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).await.map_err(HandlerError::retry)?;
    let tokens = answer.strip_prefix("ok ").and_then(|tokens| tokens.trim().parse().ok());
    tokens.ok_or_else(|| HandlerError::retry(answer.trim()))
}
