//! A connection to a server that a test can cut, stall or lead elsewhere.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;

/// Forwards connections to a server. It ends with the runtime.
#[derive(Debug)]
pub struct Proxy {
    switches: Arc<Switches>,
}

#[derive(Debug)]
struct Switches {
    /// Where new connections lead.
    server: watch::Sender<ServerAddr>,
    /// The answer of the server, counted from 1, that the client does not get; 0 for none.
    lost_at: AtomicUsize,
    /// The connection stalls then; otherwise it ends.
    stalls: AtomicBool,
    is_stalled: watch::Sender<bool>,
}

#[derive(Debug, Clone)]
enum ServerAddr {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Proxy {
    /// Listens at a Unix socket, for a server at another one.
    ///
    /// # Panics
    /// The socket exists, or there is no runtime.
    pub fn unix(socket: &Path, server: PathBuf) -> Self {
        let listener = UnixListener::bind(socket).expect("the socket is new");
        let proxy = Self::new(ServerAddr::Unix(server));
        let switches = Arc::clone(&proxy.switches);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&switches).connect(client));
            }
        });
        proxy
    }

    /// Listens at a free port, for a server at another address. Returns its own.
    ///
    /// # Panics
    /// All ports are taken, or there is no runtime.
    pub fn tcp(server: SocketAddr) -> (SocketAddr, Self) {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.and_then(|listener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        });
        let listener = listener.expect("ports are free");
        let addr = listener.local_addr().expect("it is bound");
        let proxy = Self::new(ServerAddr::Tcp(server));
        let switches = Arc::clone(&proxy.switches);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&switches).connect(client));
            }
        });
        (addr, proxy)
    }

    fn new(server: ServerAddr) -> Self {
        let (server, is_stalled) = (watch::Sender::new(server), watch::Sender::new(false));
        let (lost_at, stalls) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { switches: Arc::new(Switches { server, lost_at, stalls, is_stalled }) }
    }

    /// Leads new connections to another server. Open ones stay where they are.
    pub fn redirect(&self, server: SocketAddr) {
        self.switches.server.send_replace(ServerAddr::Tcp(server));
    }

    /// Ends the connection at the answer with this number, from now on, which the server has given and the client does
    /// not get.
    pub fn cut_at_answer(&self, number: usize) {
        self.lose_answer(number, false);
    }

    /// Stalls all connections at that answer instead.
    pub fn stall_at_answer(&self, number: usize) {
        self.lose_answer(number, true);
    }

    fn lose_answer(&self, number: usize, stalls: bool) {
        self.switches.stalls.store(stalls, Ordering::SeqCst);
        self.switches.lost_at.store(number, Ordering::SeqCst);
    }

    /// Whether the answer was lost.
    pub fn was_lost(&self) -> bool {
        self.switches.lost_at.load(Ordering::SeqCst) == 0
    }

    /// Whether the answer was lost; no further one will be.
    pub fn take_lost(&self) -> bool {
        self.switches.lost_at.swap(0, Ordering::SeqCst) == 0
    }

    /// Forwards nothing, or everything again.
    pub fn stall(&self, is_stalled: bool) {
        self.switches.stall(is_stalled);
    }
}

impl Switches {
    /// A client whose server cannot be reached loses its connection.
    async fn connect(self: Arc<Self>, client: impl AsyncRead + AsyncWrite + Unpin) {
        let server = self.server.borrow().clone();
        // Either end may close its connection at any time.
        let _ended = match server {
            ServerAddr::Tcp(addr) => match TcpStream::connect(addr).await {
                Ok(server) => self.forward(client, server).await,
                Err(error) => Err(error),
            },
            ServerAddr::Unix(path) => match UnixStream::connect(path).await {
                Ok(server) => self.forward(client, server).await,
                Err(error) => Err(error),
            },
        };
    }

    async fn forward(
        &self,
        mut client: impl AsyncRead + AsyncWrite + Unpin,
        mut server: impl AsyncRead + AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let (mut asked, mut answered) = ([0; 16_384], [0; 16_384]);
        loop {
            tokio::select! {
                read = client.read(&mut asked) => match read? {
                    0 => return Ok(()),
                    count => {
                        self.wait_while_stalled().await;
                        server.write_all(&asked[..count]).await?;
                    }
                },
                read = server.read(&mut answered) => match read? {
                    0 => return Ok(()),
                    count => {
                        self.wait_while_stalled().await;
                        if self.loses() {
                            return self.lose(&mut client).await;
                        }
                        client.write_all(&answered[..count]).await?;
                    }
                },
            }
        }
    }

    fn stall(&self, is_stalled: bool) {
        self.is_stalled.send_replace(is_stalled);
    }

    async fn wait_while_stalled(&self) {
        let mut is_stalled = self.is_stalled.subscribe();
        let _moving = is_stalled.wait_for(|is_stalled| !is_stalled).await;
    }

    fn loses(&self) -> bool {
        let count_down = |at: usize| at.checked_sub(1);
        self.lost_at.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count_down) == Ok(1)
    }

    /// A connection that stalls lasts as long as its client.
    async fn lose(&self, client: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
        if self.stalls.load(Ordering::SeqCst) {
            self.stall(true);
            let mut asked = [0; 1_024];
            while client.read(&mut asked).await? > 0 {}
        }
        Ok(())
    }
}
