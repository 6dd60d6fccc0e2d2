//! A connection to the database that a test can cut or stall.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

/// What happens to forwarded connections. They end with the runtime.
pub struct Switches {
    /// The answer of the server, counted from 1, that the client does not get; 0 for none.
    lost_at: AtomicUsize,
    /// The connection stalls then; otherwise it ends.
    stalls: AtomicBool,
    is_stalled: watch::Sender<bool>,
}

impl Switches {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            lost_at: AtomicUsize::new(0),
            stalls: AtomicBool::new(false),
            is_stalled: watch::Sender::new(false),
        })
    }

    /// Ends the connection at the answer with this number, from now on, which the server has given and the client does
    /// not get.
    pub fn cut_at_answer(&self, number: usize) {
        self.stalls.store(false, Ordering::SeqCst);
        self.lost_at.store(number, Ordering::SeqCst);
    }

    /// Stalls all connections at that answer instead.
    pub fn stall_at_answer(&self, number: usize) {
        self.stalls.store(true, Ordering::SeqCst);
        self.lost_at.store(number, Ordering::SeqCst);
    }

    /// Whether the answer was lost.
    pub fn was_lost(&self) -> bool {
        self.lost_at.load(Ordering::SeqCst) == 0
    }

    /// Whether the answer was lost; no further one will be.
    pub fn take_lost(&self) -> bool {
        self.lost_at.swap(0, Ordering::SeqCst) == 0
    }

    /// Forwards nothing, or everything again.
    pub fn stall(&self, is_stalled: bool) {
        self.is_stalled.send_replace(is_stalled);
    }

    pub async fn forward<S>(self: Arc<Self>, mut client: S, mut server: S)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
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
                        if self.loses() {
                            return self.lose(&mut client).await;
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

    fn loses(&self) -> bool {
        let count_down = |at: usize| at.checked_sub(1);
        self.lost_at.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count_down) == Ok(1)
    }

    /// A connection that stalls lasts as long as its client.
    async fn lose(&self, client: &mut (impl AsyncRead + Unpin)) {
        if self.stalls.load(Ordering::SeqCst) {
            self.stall(true);
            let mut asked = [0; 1_024];
            while client.read(&mut asked).await.is_ok_and(|count| count > 0) {}
        }
    }
}
