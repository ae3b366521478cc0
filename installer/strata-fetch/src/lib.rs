//! The download engine: the only crate with a client socket.
