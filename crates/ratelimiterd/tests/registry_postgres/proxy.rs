//! A connection to the database that a test can cut or stall.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

/// The name that clients expect in the folder of a server's socket.
const SOCKET: &str = ".s.PGSQL.5432";

/// Forwards connections to a server. It ends with the runtime.
pub struct Proxy {
    folder: TempDir,
    switches: Arc<Switches>,
}

struct Switches {
    /// The answer of the server, counted from 1, at which the connection ends instead; 0 for none.
    cut_at: AtomicUsize,
    is_stalled: watch::Sender<bool>,
}

impl Proxy {
    pub fn start(server_folder: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        let is_stalled = watch::Sender::new(false);
        let switches = Arc::new(Switches { cut_at: AtomicUsize::new(0), is_stalled });
        let (server, shared) = (server_folder.join(SOCKET), Arc::clone(&switches));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(server) = UnixStream::connect(&server).await {
                    tokio::spawn(Arc::clone(&shared).forward(client, server));
                }
            }
        });
        Self { folder, switches }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends the connection at the answer with this number, from now on, which the server has given and the client does
    /// not get.
    pub fn cut_at_answer(&self, number: usize) {
        self.switches.cut_at.store(number, Ordering::SeqCst);
    }

    /// Whether the connection was cut; it will not be any more.
    pub fn take_cut(&self) -> bool {
        self.switches.cut_at.swap(0, Ordering::SeqCst) == 0
    }

    /// Forwards nothing, or everything again.
    pub fn stall(&self, is_stalled: bool) {
        self.switches.is_stalled.send_replace(is_stalled);
    }
}

impl Switches {
    async fn forward(self: Arc<Self>, mut client: UnixStream, mut server: UnixStream) {
        let (mut asked, mut answered) = ([0; 16_384], [0; 16_384]);
        loop {
            let is_written = tokio::select! {
                read = client.read(&mut asked) => match read {
                    Ok(count) if count > 0 => {
                        self.wait_while_stalled().await;
                        server.write_all(&asked[..count]).await
                    }
                    Ok(_) | Err(_) => return,
                },
                read = server.read(&mut answered) => match read {
                    Ok(count) if count > 0 => {
                        self.wait_while_stalled().await;
                        if self.is_cut() {
                            return;
                        }
                        client.write_all(&answered[..count]).await
                    }
                    Ok(_) | Err(_) => return,
                },
            };
            if is_written.is_err() {
                return;
            }
        }
    }

    async fn wait_while_stalled(&self) {
        self.is_stalled.subscribe().wait_for(|is_stalled| !is_stalled).await.unwrap();
    }

    fn is_cut(&self) -> bool {
        let count_down = |at: usize| at.checked_sub(1);
        self.cut_at.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count_down) == Ok(1)
    }
}
