//! S02xx: tokenizer and chat template.

super::codes! {
    UNSUPPORTED_TOKENIZER = "S0201", "unsupported-tokenizer", "a tokenizer or pre-tokenizer that this build does not know", Failed;
    BAD_TOKENIZER = "S0202", "bad-tokenizer", "the model's tokenizer data contradicts itself", Failed;
    NO_CHAT_TEMPLATE = "S0203", "no-chat-template", "the model has no chat template", Failed;
    BAD_CHAT_TEMPLATE = "S0204", "bad-chat-template", "the chat template does not parse or fails", Failed;
    TEMPLATE_REFUSED = "S0205", "template-refused", "the chat template itself refuses these messages", Failed;
    UNKNOWN_TOKEN = "S0206", "unknown-token", "a token id outside the vocabulary", Failed;
}
