//! The life of a server: take the address, answer from the first second, load the model, serve,
//! stop without cutting off what is nearly done.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use strata_diag::Diagnostic;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::app::{App, Phase, Progress, Stage};
use crate::error::ServerError;
use crate::options::ServerOptions;
use crate::room::Room;
use crate::{connection, listen, router};

/// Gives the room once the model is loaded. Runs on a thread of its own.
pub type Loader = Box<dyn FnOnce(&Progress) -> Result<Arc<dyn Room>, Diagnostic> + Send>;

/// A server that has its addresses and answers.
pub struct Server {
    runtime: tokio::runtime::Runtime,
    app: Arc<App>,
    addresses: Vec<SocketAddr>,
    loaded: Option<oneshot::Receiver<Result<(), Diagnostic>>>,
    accepting: Option<tokio::task::JoinHandle<()>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// Tells a server to stop.
#[derive(Clone)]
pub struct Stopper {
    app: Arc<App>,
}

impl std::fmt::Debug for Stopper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stopper")
    }
}

impl Stopper {
    /// The first time: take nothing new and let answers end. The second time: end them.
    pub fn stop(&self) {
        self.app.stage.send_modify(|stage| {
            *stage = if *stage == Stage::Running { Stage::Draining } else { Stage::Ending };
        });
    }
}

impl Server {
    /// Takes the addresses, answers there, and begins to load. Fails before the model is touched
    /// when an address cannot be had.
    pub fn start(options: ServerOptions, load: Loader) -> Result<Server, ServerError> {
        options.check()?;
        let no_runtime = |source| ServerError::System { what: "thread for the server", source };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("strata-http")
            .enable_all()
            .build()
            .map_err(no_runtime)?;
        let listeners = runtime.block_on(listen::listen(&options.addresses))?;
        let addresses = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let app = Arc::new(App::new(options));
        let accepting = runtime.spawn(accept(listeners, Arc::clone(&app)));
        let (done, loaded) = oneshot::channel();
        let loading = Arc::clone(&app);
        let work = move || {
            let result = load(&loading.progress).map(|room| {
                // A server that was told to stop meanwhile stays so.
                if *loading.stage.borrow() == Stage::Running {
                    loading.set_phase(Phase::Ready(room));
                } else {
                    room.close();
                }
            });
            let _ = done.send(result);
        };
        std::thread::Builder::new().name("strata-load".to_owned()).spawn(work).map_err(no_runtime)?;
        Ok(Server { runtime, app, addresses, loaded: Some(loaded), accepting: Some(accepting) })
    }

    /// Where it listens; the ports are known now.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub fn stopper(&self) -> Stopper {
        Stopper { app: Arc::clone(&self.app) }
    }

    /// Waits for the model. `Ok(false)`: the server was told to stop before it was there.
    pub fn wait_until_ready(&mut self) -> Result<bool, Diagnostic> {
        let Some(loaded) = self.loaded.take() else { return Ok(true) };
        let mut stage = self.app.stage.subscribe();
        self.runtime.block_on(async {
            tokio::select! {
                result = loaded => match result {
                    Ok(result) => result.map(|()| true),
                    Err(_) => Err(Diagnostic::new(
                        strata_diag::catalogue::serving::SERVER_FAULT,
                        "loading the model ended in a panic",
                    )),
                },
                _ = stage.wait_for(|stage| *stage != Stage::Running) => Ok(false),
            }
        })
    }

    /// SIGINT and SIGTERM stop the server; a second one ends what still goes on.
    pub fn stop_on_signals(&self) -> Result<(), ServerError> {
        let failed = |source| ServerError::System { what: "signals", source };
        let stopper = self.stopper();
        let app = Arc::clone(&self.app);
        let _inside = self.runtime.enter();
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
            let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
            self.runtime.spawn(async move {
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    let grace = app.options.grace.as_secs();
                    app.log(&format!("stopping: answers may go on for {grace} s; a second signal ends them"));
                    stopper.stop();
                }
            });
        }
        #[cfg(not(unix))]
        self.runtime.spawn(async move {
            let _ = (failed, app);
            while tokio::signal::ctrl_c().await.is_ok() {
                stopper.stop();
            }
        });
        Ok(())
    }

    /// Serves until it is told to stop, and returns when everything has ended.
    pub fn run(mut self) {
        let Some(accepting) = self.accepting.take() else { return };
        // Its task ends when stopping is done; a panic in it ends the server as well.
        let _ = self.runtime.block_on(accepting);
        if let Phase::Ready(room) = self.app.phase() {
            self.app.set_phase(Phase::Stopping);
            room.close();
        }
        self.runtime.shutdown_timeout(Duration::from_secs(1));
    }
}

/// Takes connections until the server stops, then waits for those that go on.
async fn accept(listeners: Vec<TcpListener>, app: Arc<App>) {
    let router = router::router(&app);
    let limit = Arc::new(Semaphore::new(app.options.most_connections));
    let mut stage = app.stage.subscribe();
    let mut connections = JoinSet::new();
    let mut accepting = JoinSet::new();
    let (arrived, mut arriving) = tokio::sync::mpsc::channel(1);
    for listener in listeners {
        let (limit, arrived) = (Arc::clone(&limit), arrived.clone());
        accepting.spawn(async move {
            loop {
                let Ok(permit) = Arc::clone(&limit).acquire_owned().await else { return };
                match listener.accept().await {
                    Ok((stream, _)) => {
                        if arrived.send((stream, permit)).await.is_err() {
                            return;
                        }
                    }
                    // Out of descriptors, or a client that went at once: the next try may do.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        });
    }
    loop {
        tokio::select! {
            _ = stage.wait_for(|stage| *stage != Stage::Running) => break,
            Some((stream, permit)) = arriving.recv() => {
                let (app, router) = (Arc::clone(&app), router.clone());
                connections.spawn(async move {
                    connection::serve(stream, app, router).await;
                    drop(permit);
                });
            }
            // Keeps the set from growing with every connection there ever was.
            Some(_) = connections.join_next() => {}
        }
    }
    accepting.shutdown().await;
    drain(&app, connections).await;
}

/// Lets answers end by themselves, for a while; then ends them, with a word to their clients.
async fn drain(app: &App, mut connections: JoinSet<()>) {
    let mut stage = app.stage.subscribe();
    let grace = tokio::time::sleep(app.options.grace);
    let mut grace = std::pin::pin!(grace);
    let start = Instant::now();
    loop {
        tokio::select! {
            ended = connections.join_next() => if ended.is_none() { return },
            () = grace.as_mut() => break,
            _ = stage.wait_for(|stage| *stage == Stage::Ending) => break,
        }
    }
    app.log(&format!("{} connections are ended after {} s", connections.len(), start.elapsed().as_secs()));
    app.stage.send_replace(Stage::Ending);
    let last_words = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(Duration::from_secs(3), last_words).await;
    connections.shutdown().await;
}
