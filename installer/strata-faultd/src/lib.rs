//! A server that misbehaves on purpose, for tests of the download engine. Development only.
