//! S08xx: serving over HTTP.

super::codes! {
    PORT_IN_USE = "S0801", "port-in-use", "another program listens at the server's address", Failed;
    LISTEN_FAILED = "S0802", "listen-failed", "the server cannot listen at this address", Failed;
    KEY_NEEDED = "S0803", "key-needed", "an address that other machines reach needs a key", Usage;
    BAD_KEY_FILE = "S0804", "bad-key-file", "a key or a file of keys that cannot be used", Usage;
    BAD_REQUEST = "S0805", "bad-request", "a request that is not what the interface takes", Failed;
    WRONG_KEY = "S0806", "wrong-key", "a request with no key or a wrong one", Failed;
    NOT_ALLOWED = "S0807", "not-allowed", "a request for a host or from a web page that is not allowed", Failed;
    NO_SUCH_PATH = "S0808", "no-such-path", "a path or method that the server does not have", Failed;
    TOO_LARGE = "S0809", "too-large", "a request body that is longer than allowed", Failed;
    TOO_SLOW = "S0810", "too-slow", "a request that does not arrive in time", Failed;
    NOT_READY = "S0811", "not-ready", "the model is not loaded, or the server is stopping", Failed;
    SERVER_FULL = "S0812", "server-full", "more requests wait than the queue holds", Failed;
    UNSUPPORTED = "S0813", "unsupported", "something that this model or this server cannot do", Failed;
    SERVER_FAULT = "S0814", "server-fault", "the server failed to answer for a reason of its own", Failed;
}
