//! The ceiling: a reverse proxy that passes bytes on and looks at none of them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;

use http_body_util::Either;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};

use crate::child::{PROVIDER_VARIABLE, announce};

type Pool = Client<HttpConnector, Incoming>;

/// Serves on a free port until it is killed, with the libraries and on the runtime of `ratelimiterd`.
pub(crate) fn serve() -> ExitCode {
    let provider = std::env::var(PROVIDER_VARIABLE).ok().and_then(|addr| addr.parse().ok());
    let provider = provider.expect("a run names the provider");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(accept(provider));
    ExitCode::SUCCESS
}

async fn accept(provider: SocketAddr) {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let pool: Pool = Client::builder(TokioExecutor::new()).build(connector);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    announce(listener.local_addr().expect("it is bound"));
    loop {
        let (stream, _) = listener.accept().await.expect("a file descriptor is free");
        tokio::spawn(serve_connection(stream, pool.clone(), provider));
    }
}

async fn serve_connection(stream: TcpStream, pool: Pool, provider: SocketAddr) {
    stream.set_nodelay(true).expect("the connection is open");
    let service = service_fn(move |request| {
        let pool = pool.clone();
        async move { Ok::<_, Infallible>(pass_on(&pool, provider, request).await) }
    });
    let protocol = auto::Builder::new(TokioExecutor::new());
    // A caller that leaves is no concern of the next one.
    drop(protocol.serve_connection(TokioIo::new(stream), service).await);
}

/// Both bodies are streams.
async fn pass_on(
    pool: &Pool,
    provider: SocketAddr,
    mut request: Request<Incoming>,
) -> Response<Either<Incoming, String>> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let uri = Uri::builder().scheme("http").authority(provider.to_string()).path_and_query(path);
    *request.uri_mut() = uri.build().expect("an address and the path of a request");
    match pool.request(request).await {
        Ok(answer) => answer.map(Either::Left),
        Err(error) => {
            let mut answer = Response::new(Either::Right(error.to_string()));
            *answer.status_mut() = StatusCode::BAD_GATEWAY;
            answer
        }
    }
}
