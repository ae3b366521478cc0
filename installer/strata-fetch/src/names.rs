//! Who turns names into addresses: the system, or somebody that a caller puts in its place.

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

type Lookup = dyn Fn(&str) -> std::io::Result<Vec<IpAddr>> + Send + Sync;

/// Answers for the system's resolver. It is asked on a thread of its own and may take its time.
#[derive(Clone)]
pub struct Names(Arc<Lookup>);

impl Names {
    pub fn new(lookup: impl Fn(&str) -> std::io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Names {
        Names(Arc::new(lookup))
    }
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Names")
    }
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let lookup = Arc::clone(&self.0);
        Box::pin(async move {
            let found = tokio::task::spawn_blocking(move || lookup(name.as_str())).await??;
            // The port comes from the address that is asked for.
            let addresses = found.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}
