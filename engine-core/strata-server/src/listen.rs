//! Takes the server's addresses, before the model is read, and says who has them when they are taken.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::error::ServerError;

/// Listens at all addresses. Port 0 takes the same free port for all.
pub(crate) async fn listen(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, ServerError> {
    let mut listeners: Vec<TcpListener> = Vec::new();
    let mut port = None;
    for address in addresses {
        let mut address = *address;
        if address.port() == 0
            && let Some(port) = port
        {
            address.set_port(port);
        }
        // Never SO_REUSEPORT: a second server would take half of this one's requests.
        let listener = TcpListener::bind(address).await.map_err(|source| refused(address, source))?;
        port = listener.local_addr().ok().map(|address| address.port());
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Whether a server could listen at this address now; nothing listens there afterwards.
pub fn try_address(address: SocketAddr) -> Result<(), ServerError> {
    std::net::TcpListener::bind(address).map(drop).map_err(|source| refused(address, source))
}

fn refused(address: SocketAddr, source: std::io::Error) -> ServerError {
    if source.kind() == std::io::ErrorKind::AddrInUse {
        return ServerError::PortInUse { address, holder: holder(address) };
    }
    ServerError::Listen { address, source }
}

/// The program that listens at this port, as far as the system tells this user.
#[cfg(target_os = "linux")]
fn holder(address: SocketAddr) -> Option<String> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| fs_err::read_to_string(path).ok())
        .flat_map(|table| listening_inodes(&table, address.port()))
        .collect();
    if inodes.is_empty() {
        return None;
    }
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let processes = fs_err::read_dir("/proc").ok()?;
    let numbered = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    for process in numbered {
        let Ok(files) = fs_err::read_dir(format!("/proc/{process}/fd")) else { continue };
        let holds = files.filter_map(|entry| fs_err::read_link(entry.ok()?.path()).ok()).any(|target| {
            let target = target.to_string_lossy();
            wanted.iter().any(|wanted| *wanted == target)
        });
        if holds {
            let name = fs_err::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            return Some(format!("`{}` (process {process})", name.trim()));
        }
    }
    Some("a program of another user".to_owned())
}

#[cfg(not(target_os = "linux"))]
fn holder(_: SocketAddr) -> Option<String> {
    None
}

/// Of a table of sockets as Linux writes it: the inodes of those that listen at this port.
#[cfg(target_os = "linux")]
fn listening_inodes(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, hex) = fields.get(1)?.rsplit_once(':')?;
        let is_it = u16::from_str_radix(hex, 16).ok()? == port && *fields.get(3)? == LISTEN;
        is_it.then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
    };
    table.lines().skip(1).filter_map(inode).collect()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_port_is_named() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let holder = holder(socket.local_addr().unwrap()).unwrap();
        assert!(holder.contains(&format!("(process {})", std::process::id())), "{holder}");
    }

    #[test]
    fn only_listening_sockets_of_the_port_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0 100 0 0 10 0\n\
            1: 0100007F:1F90 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1000        0 4343 1 0 100 0 0 10 0\n\
            2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4444 1 0 100 0 0 10 0\n";
        assert_eq!(listening_inodes(table, 8080), ["4242"]);
    }
}
