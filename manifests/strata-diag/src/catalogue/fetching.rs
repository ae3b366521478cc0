//! S06xx: fetching.

super::codes! {
    FETCH_NETWORK = "S0601", "fetch-network", "a server cannot be reached, or what it sends keeps breaking off", Failed;
    FETCH_STATUS = "S0602", "fetch-status", "a server refuses to give a file", Failed;
    FETCH_PAGE = "S0603", "fetch-page", "a page came instead of a file", Failed;
    FETCH_MISMATCH = "S0604", "fetch-mismatch", "a fetched file is not the one that is wanted", Failed;
    FETCH_TLS = "S0605", "fetch-tls", "a server's certificate is not trusted", Failed;
    FETCH_DISK = "S0606", "fetch-disk", "a download cannot be written", Failed;
    FETCH_SOURCE = "S0607", "fetch-source", "a source is not written as sources are", Usage;
    FETCH_PIP = "S0608", "fetch-pip", "pip did not bring a package", Failed;
    FETCH_SPACE = "S0609", "fetch-space", "a download does not fit on its disk", Failed;
    FETCH_LOCKED = "S0610", "fetch-locked", "a lock file does not hold what is asked for", Failed;
    FETCH_INCOMPLETE = "S0611", "fetch-incomplete", "a model is not whole at its source", Failed;
    FETCH_CHOICE = "S0612", "fetch-choice", "a source does not say which of its models is meant", Usage;
}
