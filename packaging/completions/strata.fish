# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_strata_global_optspecs
    string join \n h/help V/version
end

function __fish_strata_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_strata_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_strata_using_subcommand
    set -l cmd (__fish_strata_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c strata -n "__fish_strata_needs_command" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_needs_command" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_needs_command" -f -a "run" -d 'Answer a prompt, or chat when none is given'
complete -c strata -n "__fish_strata_needs_command" -f -a "chat" -d 'Answer a prompt, or chat when none is given'
complete -c strata -n "__fish_strata_needs_command" -f -a "serve" -d 'Answer programs and people over HTTP: the interfaces of OpenAI and Anthropic, and a web page'
complete -c strata -n "__fish_strata_needs_command" -f -a "tokenize" -d 'Print the token ids of texts'
complete -c strata -n "__fish_strata_needs_command" -f -a "eval" -d 'Measure how far this build is from exact reference data, or a text\'s perplexity'
complete -c strata -n "__fish_strata_needs_command" -f -a "bench" -d 'Measure prompt and decode speed'
complete -c strata -n "__fish_strata_needs_command" -f -a "inspect" -d 'Show what a model file holds, what it needs and whether this build can run it'
complete -c strata -n "__fish_strata_needs_command" -f -a "doctor" -d 'Say what this machine and this installation can do, what is wrong and what to do about it'
complete -c strata -n "__fish_strata_needs_command" -f -a "ps" -d 'List the servers that run on this machine'
complete -c strata -n "__fish_strata_needs_command" -f -a "stop" -d 'Ask servers of this machine to end, and wait until they have'
complete -c strata -n "__fish_strata_needs_command" -f -a "package" -d 'Build, index and sign packages'
complete -c strata -n "__fish_strata_needs_command" -f -a "verify-package" -d 'Prove that a package is exactly what its manifest says: files, versions, ELF, GPU code, signature'
complete -c strata -n "__fish_strata_needs_command" -f -a "completions" -d 'Print a shell\'s completions of this program\'s commands and flags'
complete -c strata -n "__fish_strata_needs_command" -f -a "explain" -d 'Explain an error code'
complete -c strata -n "__fish_strata_needs_command" -f -a "version" -d 'Print version and build record'
complete -c strata -n "__fish_strata_needs_command" -f -a "internal-probe" -d 'Load one plugin and say what it finds: what a plugin\'s first open runs in a child process'
complete -c strata -n "__fish_strata_needs_command" -f -a "internal-nvml" -d 'Ask NVIDIA\'s management library about its cards: what the detector runs in a child process'
complete -c strata -n "__fish_strata_needs_command" -f -a "internal-selftest" -d 'Compare one device\'s operations with the CPU\'s: what `doctor --selftest` runs in a child process'
complete -c strata -n "__fish_strata_needs_command" -f -a "internal-reference" -d 'Print docs/cli.md, or the man pages and completions of packages'
complete -c strata -n "__fish_strata_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c strata -n "__fish_strata_using_subcommand run" -l backend -d 'What computes. `auto` takes the best that works and says so; a named one is never replaced by another' -r -f -a "auto\t''
cpu\t''
cuda\t''
hip\t''"
complete -c strata -n "__fish_strata_using_subcommand run" -l device -d 'Choose among several devices: by PCI address, UUID (`GPU-…`) or `unique_id`' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l plugin -d 'Use the plugin of this descriptor file instead of the installed ones. May be given several times' -r -F
complete -c strata -n "__fish_strata_using_subcommand run" -l variant -d 'Kernel variant of the plugin (`scalar`, `avx2`, …); default: the best that the device has' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l threads -d 'CPU threads; default: one per usable physical core' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l max-context -d 'Tokens of context to reserve memory for; default: what the model was made for, at most 8192' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l kv -d 'Storage of the KV cache: `f16` (default) or `f32`; two for keys and values: `f32,f16`' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l vram-reserve-mib -d 'Bytes of device memory to leave free, in MiB' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l prefix -d 'Installation to take plugins and models from; default: the one this program lies in' -r -F
complete -c strata -n "__fish_strata_using_subcommand run" -l temperature -d '0 always takes the most likely token' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l top-k -d 'Only the K most likely tokens; 0: all' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l top-p -d 'Only the most likely tokens that together reach this probability' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l min-p -d 'Only tokens with at least this share of the most likely one\'s probability' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l repeat-penalty -d 'Divides the logits of tokens among the last `--repeat-last-n`; 1 is off' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l repeat-last-n -d 'How far back the penalties look, in tokens' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l presence-penalty -d 'Subtracted once from the logit of every token that occurred' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l frequency-penalty -d 'Subtracted from a token\'s logit for each time it occurred' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l seed -d 'Same seed, same text; default: a fresh one, which is printed with `--json`' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l logit-bias -d 'Adds to a token\'s logit: `ID=VALUE`, `-inf` forbids it. May be given several times' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l system -d 'System message for models with a chat template' -r
complete -c strata -n "__fish_strata_using_subcommand run" -s n -l max-tokens -d 'Stop after this many tokens; default: until the model ends or the context is full' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l stop -d 'Stop where this text begins, which is not printed. May be given several times' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l json-schema -d 'The answer is JSON that the schema in this file describes' -r -F
complete -c strata -n "__fish_strata_using_subcommand run" -l grammar -d 'The answer is text of the grammar in this file, in Lark\'s notation, from its rule `start` on' -r -F
complete -c strata -n "__fish_strata_using_subcommand run" -l regex -d 'The answer as a whole matches this regular expression' -r
complete -c strata -n "__fish_strata_using_subcommand run" -l backend-report -d 'Print the whole reasoning behind the choice of backend, then go on'
complete -c strata -n "__fish_strata_using_subcommand run" -l retry-plugin -d 'Try a plugin again that crashed or hung before'
complete -c strata -n "__fish_strata_using_subcommand run" -l precise -d 'Compute with float activations and an f32 cache: slower, nearly exact'
complete -c strata -n "__fish_strata_using_subcommand run" -l raw -d 'Give the prompt to the model as it is, without its chat template'
complete -c strata -n "__fish_strata_using_subcommand run" -l json -d 'Print one JSON object at the end instead of streaming text'
complete -c strata -n "__fish_strata_using_subcommand run" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand run" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand chat" -l backend -d 'What computes. `auto` takes the best that works and says so; a named one is never replaced by another' -r -f -a "auto\t''
cpu\t''
cuda\t''
hip\t''"
complete -c strata -n "__fish_strata_using_subcommand chat" -l device -d 'Choose among several devices: by PCI address, UUID (`GPU-…`) or `unique_id`' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l plugin -d 'Use the plugin of this descriptor file instead of the installed ones. May be given several times' -r -F
complete -c strata -n "__fish_strata_using_subcommand chat" -l variant -d 'Kernel variant of the plugin (`scalar`, `avx2`, …); default: the best that the device has' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l threads -d 'CPU threads; default: one per usable physical core' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l max-context -d 'Tokens of context to reserve memory for; default: what the model was made for, at most 8192' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l kv -d 'Storage of the KV cache: `f16` (default) or `f32`; two for keys and values: `f32,f16`' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l vram-reserve-mib -d 'Bytes of device memory to leave free, in MiB' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l prefix -d 'Installation to take plugins and models from; default: the one this program lies in' -r -F
complete -c strata -n "__fish_strata_using_subcommand chat" -l temperature -d '0 always takes the most likely token' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l top-k -d 'Only the K most likely tokens; 0: all' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l top-p -d 'Only the most likely tokens that together reach this probability' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l min-p -d 'Only tokens with at least this share of the most likely one\'s probability' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l repeat-penalty -d 'Divides the logits of tokens among the last `--repeat-last-n`; 1 is off' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l repeat-last-n -d 'How far back the penalties look, in tokens' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l presence-penalty -d 'Subtracted once from the logit of every token that occurred' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l frequency-penalty -d 'Subtracted from a token\'s logit for each time it occurred' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l seed -d 'Same seed, same text; default: a fresh one, which is printed with `--json`' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l logit-bias -d 'Adds to a token\'s logit: `ID=VALUE`, `-inf` forbids it. May be given several times' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l system -d 'System message for models with a chat template' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -s n -l max-tokens -d 'Stop after this many tokens; default: until the model ends or the context is full' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l stop -d 'Stop where this text begins, which is not printed. May be given several times' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l json-schema -d 'The answer is JSON that the schema in this file describes' -r -F
complete -c strata -n "__fish_strata_using_subcommand chat" -l grammar -d 'The answer is text of the grammar in this file, in Lark\'s notation, from its rule `start` on' -r -F
complete -c strata -n "__fish_strata_using_subcommand chat" -l regex -d 'The answer as a whole matches this regular expression' -r
complete -c strata -n "__fish_strata_using_subcommand chat" -l backend-report -d 'Print the whole reasoning behind the choice of backend, then go on'
complete -c strata -n "__fish_strata_using_subcommand chat" -l retry-plugin -d 'Try a plugin again that crashed or hung before'
complete -c strata -n "__fish_strata_using_subcommand chat" -l precise -d 'Compute with float activations and an f32 cache: slower, nearly exact'
complete -c strata -n "__fish_strata_using_subcommand chat" -l raw -d 'Give the prompt to the model as it is, without its chat template'
complete -c strata -n "__fish_strata_using_subcommand chat" -l json -d 'Print one JSON object at the end instead of streaming text'
complete -c strata -n "__fish_strata_using_subcommand chat" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand chat" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand serve" -l host -d 'Address or name to listen at. One that other machines reach needs a key' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l port -d 'Port to listen at; 0: any free one' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l api-key -d 'Key that requests must carry. Other users see it in the list of processes: better in a file, or in the environment variable STRATA_API_KEY' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l api-key-file -d 'File of keys, one a line; each of them will do' -r -F
complete -c strata -n "__fish_strata_using_subcommand serve" -l allow-host -d 'Name that requests may be for, beside `localhost` and IP addresses, when there is no key; `*`: any. May be given several times' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l cors-origin -d 'Origin of web pages that may use the server from browsers, such as `https://page.example`; `*`: any. May be given several times' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l name -d 'Name of the model that clients see; default: the name given, or that of the file' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l slots -d 'Answers that are made at one time. Each has a context of `--max-context` tokens' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l max-queue -d 'Requests that may wait for a slot; one more gets status 429' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l conversation-cache-mib -d 'Host memory for earlier conversations, so that they need not be read again, in MiB' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l max-body-mib -d 'Longest body of a request, in MiB' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l grace -d 'Seconds that answers may go on after the server was told to stop' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l service-name -d 'Name of the unit: several models are several services' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l backend -d 'What computes. `auto` takes the best that works and says so; a named one is never replaced by another' -r -f -a "auto\t''
cpu\t''
cuda\t''
hip\t''"
complete -c strata -n "__fish_strata_using_subcommand serve" -l device -d 'Choose among several devices: by PCI address, UUID (`GPU-…`) or `unique_id`' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l plugin -d 'Use the plugin of this descriptor file instead of the installed ones. May be given several times' -r -F
complete -c strata -n "__fish_strata_using_subcommand serve" -l variant -d 'Kernel variant of the plugin (`scalar`, `avx2`, …); default: the best that the device has' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l threads -d 'CPU threads; default: one per usable physical core' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l max-context -d 'Tokens of context to reserve memory for; default: what the model was made for, at most 8192' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l kv -d 'Storage of the KV cache: `f16` (default) or `f32`; two for keys and values: `f32,f16`' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l vram-reserve-mib -d 'Bytes of device memory to leave free, in MiB' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l prefix -d 'Installation to take plugins and models from; default: the one this program lies in' -r -F
complete -c strata -n "__fish_strata_using_subcommand serve" -l temperature -d '0 always takes the most likely token' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l top-k -d 'Only the K most likely tokens; 0: all' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l top-p -d 'Only the most likely tokens that together reach this probability' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l min-p -d 'Only tokens with at least this share of the most likely one\'s probability' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l repeat-penalty -d 'Divides the logits of tokens among the last `--repeat-last-n`; 1 is off' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l repeat-last-n -d 'How far back the penalties look, in tokens' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l presence-penalty -d 'Subtracted once from the logit of every token that occurred' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l frequency-penalty -d 'Subtracted from a token\'s logit for each time it occurred' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l seed -d 'Same seed, same text; default: a fresh one, which is printed with `--json`' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l logit-bias -d 'Adds to a token\'s logit: `ID=VALUE`, `-inf` forbids it. May be given several times' -r
complete -c strata -n "__fish_strata_using_subcommand serve" -l no-api-key -d 'Let everybody who reaches the address use it'
complete -c strata -n "__fish_strata_using_subcommand serve" -l no-page -d 'Serve no web page'
complete -c strata -n "__fish_strata_using_subcommand serve" -l install-service -d 'Serve nothing now: write this command line as a systemd unit of this user, and say what starts it'
complete -c strata -n "__fish_strata_using_subcommand serve" -l uninstall-service -d 'Remove the unit that `--install-service` wrote'
complete -c strata -n "__fish_strata_using_subcommand serve" -l replace-service -d 'Also replace or remove a unit of that name that Strata did not write, or that was changed since'
complete -c strata -n "__fish_strata_using_subcommand serve" -l backend-report -d 'Print the whole reasoning behind the choice of backend, then go on'
complete -c strata -n "__fish_strata_using_subcommand serve" -l retry-plugin -d 'Try a plugin again that crashed or hung before'
complete -c strata -n "__fish_strata_using_subcommand serve" -l precise -d 'Compute with float activations and an f32 cache: slower, nearly exact'
complete -c strata -n "__fish_strata_using_subcommand serve" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand serve" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand tokenize" -l prefix -d 'Installation to take models from' -r -F
complete -c strata -n "__fish_strata_using_subcommand tokenize" -l special -d 'Recognise special tokens in the text and add those that the model wants (BOS)'
complete -c strata -n "__fish_strata_using_subcommand tokenize" -l json -d 'Read a JSON array of strings from standard input, print an array of arrays of ids'
complete -c strata -n "__fish_strata_using_subcommand tokenize" -l decode -d 'The other way: ids (separated by blanks, or with `--json` arrays of ids) to text'
complete -c strata -n "__fish_strata_using_subcommand tokenize" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand tokenize" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand eval" -l reference -d 'Compare with exact logits: prints `kl_mean`, `kl_max`, `top1`' -r -F
complete -c strata -n "__fish_strata_using_subcommand eval" -l case -d 'Case of a reference file that holds several models (by name); default: the one whose SHA-256 is the model\'s, else all cases' -r
complete -c strata -n "__fish_strata_using_subcommand eval" -l perplexity -d 'Perplexity of a text file: chunks of `--chunk` tokens, second half of each scored' -r -F
complete -c strata -n "__fish_strata_using_subcommand eval" -l chunk -d 'Tokens of a perplexity chunk' -r
complete -c strata -n "__fish_strata_using_subcommand eval" -l backend -d 'What computes. `auto` takes the best that works and says so; a named one is never replaced by another' -r -f -a "auto\t''
cpu\t''
cuda\t''
hip\t''"
complete -c strata -n "__fish_strata_using_subcommand eval" -l device -d 'Choose among several devices: by PCI address, UUID (`GPU-…`) or `unique_id`' -r
complete -c strata -n "__fish_strata_using_subcommand eval" -l plugin -d 'Use the plugin of this descriptor file instead of the installed ones. May be given several times' -r -F
complete -c strata -n "__fish_strata_using_subcommand eval" -l variant -d 'Kernel variant of the plugin (`scalar`, `avx2`, …); default: the best that the device has' -r
complete -c strata -n "__fish_strata_using_subcommand eval" -l threads -d 'CPU threads; default: one per usable physical core' -r
complete -c strata -n "__fish_strata_using_subcommand eval" -l max-context -d 'Tokens of context to reserve memory for; default: what the model was made for, at most 8192' -r
complete -c strata -n "__fish_strata_using_subcommand eval" -l kv -d 'Storage of the KV cache: `f16` (default) or `f32`; two for keys and values: `f32,f16`' -r
complete -c strata -n "__fish_strata_using_subcommand eval" -l vram-reserve-mib -d 'Bytes of device memory to leave free, in MiB' -r
complete -c strata -n "__fish_strata_using_subcommand eval" -l prefix -d 'Installation to take plugins and models from; default: the one this program lies in' -r -F
complete -c strata -n "__fish_strata_using_subcommand eval" -l backend-report -d 'Print the whole reasoning behind the choice of backend, then go on'
complete -c strata -n "__fish_strata_using_subcommand eval" -l retry-plugin -d 'Try a plugin again that crashed or hung before'
complete -c strata -n "__fish_strata_using_subcommand eval" -l precise -d 'Compute with float activations and an f32 cache: slower, nearly exact'
complete -c strata -n "__fish_strata_using_subcommand eval" -l json -d 'Print one JSON object'
complete -c strata -n "__fish_strata_using_subcommand eval" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand eval" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand bench" -l prompt-tokens -d 'Prompt lengths to measure, tokens' -r
complete -c strata -n "__fish_strata_using_subcommand bench" -l decode-tokens -d 'Tokens to decode one by one' -r
complete -c strata -n "__fish_strata_using_subcommand bench" -l depths -d 'Tokens that the context holds already when decoding begins' -r
complete -c strata -n "__fish_strata_using_subcommand bench" -l runs -d 'Measured runs of each, after one that is not counted' -r
complete -c strata -n "__fish_strata_using_subcommand bench" -l session -d 'Also a session as an agent has it: so many turns, each with the whole talk before it' -r
complete -c strata -n "__fish_strata_using_subcommand bench" -l starts -d 'Also so many fresh processes, one after another: time to ready, first speeds, and their spread' -r
complete -c strata -n "__fish_strata_using_subcommand bench" -l needle -d 'Also whether a sentence is found again at these depths of a long text, percent' -r
complete -c strata -n "__fish_strata_using_subcommand bench" -l needle-tokens -d 'Length of that text, tokens' -r
complete -c strata -n "__fish_strata_using_subcommand bench" -l compare -d 'Compare with an earlier report of `--json`' -r -F
complete -c strata -n "__fish_strata_using_subcommand bench" -l backend -d 'What computes. `auto` takes the best that works and says so; a named one is never replaced by another' -r -f -a "auto\t''
cpu\t''
cuda\t''
hip\t''"
complete -c strata -n "__fish_strata_using_subcommand bench" -l device -d 'Choose among several devices: by PCI address, UUID (`GPU-…`) or `unique_id`' -r
complete -c strata -n "__fish_strata_using_subcommand bench" -l plugin -d 'Use the plugin of this descriptor file instead of the installed ones. May be given several times' -r -F
complete -c strata -n "__fish_strata_using_subcommand bench" -l variant -d 'Kernel variant of the plugin (`scalar`, `avx2`, …); default: the best that the device has' -r
complete -c strata -n "__fish_strata_using_subcommand bench" -l threads -d 'CPU threads; default: one per usable physical core' -r
complete -c strata -n "__fish_strata_using_subcommand bench" -l max-context -d 'Tokens of context to reserve memory for; default: what the model was made for, at most 8192' -r
complete -c strata -n "__fish_strata_using_subcommand bench" -l kv -d 'Storage of the KV cache: `f16` (default) or `f32`; two for keys and values: `f32,f16`' -r
complete -c strata -n "__fish_strata_using_subcommand bench" -l vram-reserve-mib -d 'Bytes of device memory to leave free, in MiB' -r
complete -c strata -n "__fish_strata_using_subcommand bench" -l prefix -d 'Installation to take plugins and models from; default: the one this program lies in' -r -F
complete -c strata -n "__fish_strata_using_subcommand bench" -l backend-report -d 'Print the whole reasoning behind the choice of backend, then go on'
complete -c strata -n "__fish_strata_using_subcommand bench" -l retry-plugin -d 'Try a plugin again that crashed or hung before'
complete -c strata -n "__fish_strata_using_subcommand bench" -l precise -d 'Compute with float activations and an f32 cache: slower, nearly exact'
complete -c strata -n "__fish_strata_using_subcommand bench" -l json -d 'Print one JSON object'
complete -c strata -n "__fish_strata_using_subcommand bench" -l internal-start -d 'What a process of `--starts` does: load, one prompt, one answer, one line'
complete -c strata -n "__fish_strata_using_subcommand bench" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand bench" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand inspect" -l max-context -d 'Context for the memory figures, tokens; default: what the model was made for' -r
complete -c strata -n "__fish_strata_using_subcommand inspect" -l prefix -d 'Installation to take models from' -r -F
complete -c strata -n "__fish_strata_using_subcommand inspect" -l tensors -d 'List every tensor'
complete -c strata -n "__fish_strata_using_subcommand inspect" -l json -d 'Print one JSON object (always with all tensors)'
complete -c strata -n "__fish_strata_using_subcommand inspect" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand inspect" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand doctor" -l selftest-limit -d 'Seconds that one operation of the self-test may take before it counts as hanging' -r
complete -c strata -n "__fish_strata_using_subcommand doctor" -l report -d 'Also write the text to a new file, without names of people and machines and without serial numbers: to show others' -r -F
complete -c strata -n "__fish_strata_using_subcommand doctor" -l root -d 'Look at the copy of another machine\'s files below this folder; no plugin is opened' -r -F
complete -c strata -n "__fish_strata_using_subcommand doctor" -l plugin -d 'Use the plugin of this descriptor file instead of the installed ones. May be given several times' -r -F
complete -c strata -n "__fish_strata_using_subcommand doctor" -l model -d 'Also look at this model file: whether it is whole and this build can run it. May be given several times' -r -F
complete -c strata -n "__fish_strata_using_subcommand doctor" -l port -d 'The port that a server is to have' -r
complete -c strata -n "__fish_strata_using_subcommand doctor" -l prefix -d 'Installation to look at; default: the one this program lies in' -r -F
complete -c strata -n "__fish_strata_using_subcommand doctor" -l json -d 'Print one JSON object: the checks, the host facts, the choice of backend'
complete -c strata -n "__fish_strata_using_subcommand doctor" -l selftest -d 'Run a model\'s operations on every device and compare with the CPU\'s plain kernels'
complete -c strata -n "__fish_strata_using_subcommand doctor" -l full -d 'Also hash every installed file and model; without it, their sizes are compared'
complete -c strata -n "__fish_strata_using_subcommand doctor" -l retry-plugin -d 'Try a plugin again that crashed or hung before'
complete -c strata -n "__fish_strata_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand doctor" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand ps" -l json -d 'Print one JSON object'
complete -c strata -n "__fish_strata_using_subcommand ps" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand ps" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand stop" -l timeout -d 'Seconds to wait for it to finish its answers' -r
complete -c strata -n "__fish_strata_using_subcommand stop" -l all -d 'All servers'
complete -c strata -n "__fish_strata_using_subcommand stop" -l force -d 'End it by force when it has not ended in time'
complete -c strata -n "__fish_strata_using_subcommand stop" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand stop" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand package; and not __fish_seen_subcommand_from build index keygen sign keys trust-root help" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand package; and not __fish_seen_subcommand_from build index keygen sign keys trust-root help" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand package; and not __fish_seen_subcommand_from build index keygen sign keys trust-root help" -f -a "build" -d 'Build the archives of components from what was compiled'
complete -c strata -n "__fish_strata_using_subcommand package; and not __fish_seen_subcommand_from build index keygen sign keys trust-root help" -f -a "index" -d 'Write `release.json` and `SHA256SUMS.txt` for the archives of a folder'
complete -c strata -n "__fish_strata_using_subcommand package; and not __fish_seen_subcommand_from build index keygen sign keys trust-root help" -f -a "keygen" -d 'Make a key pair: `STEM.key` (secret, mode 0600) and `STEM.pub`'
complete -c strata -n "__fish_strata_using_subcommand package; and not __fish_seen_subcommand_from build index keygen sign keys trust-root help" -f -a "sign" -d 'Sign the index and the checksum list of a release folder, or single files'
complete -c strata -n "__fish_strata_using_subcommand package; and not __fish_seen_subcommand_from build index keygen sign keys trust-root help" -f -a "keys" -d 'Write the list of keys that may sign releases, signed by a root key'
complete -c strata -n "__fish_strata_using_subcommand package; and not __fish_seen_subcommand_from build index keygen sign keys trust-root help" -f -a "trust-root" -d 'Write a trust root: the keys that may sign key lists'
complete -c strata -n "__fish_strata_using_subcommand package; and not __fish_seen_subcommand_from build index keygen sign keys trust-root help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from build" -l out -d 'Folder that the archives are written to' -r -F
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from build" -l from -d 'Folder of the compiled files' -r -F
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from build" -l source -d 'Root of the source; default: the folder with a `Cargo.lock` at or above the first recipe' -r -F
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from build" -l format -d '`tar.gz`, `tar.zst`, `zip`; several with commas' -r
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from build" -l exact -d 'Stop where anything in the folder of compiled files is claimed by no line of the recipe'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from build" -l allow-build-paths -d 'Accept programs that hold paths of the machine that built them: for tests'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from build" -l json -d 'Print one JSON object'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from build" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from build" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from index" -l serial -d 'Number that only grows; who has seen a higher one refuses this release. Default: the seconds of `--created`' -r
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from index" -l created -d 'When the index was made, `2026-12-01T00:00:00Z`; default: now' -r
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from index" -l expires-days -d 'Days until the index must be replaced by a newer one' -r
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from index" -l model -d 'Model to offer: its name and its files in the folder, in order. May be given several times' -r
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from index" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from index" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from keygen" -l password-file -d 'Take the password from the first line of a file' -r -F
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from keygen" -l no-password -d 'Leave the secret key unprotected; without this a password is asked for'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from keygen" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from keygen" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from sign" -l key -d 'Secret key in minisign\'s format' -r -F
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from sign" -l password-file -d 'Take the key\'s password from the first line of a file; without this it is asked for when needed' -r -F
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from sign" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from sign" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from keys" -l key -d 'Secret key in minisign\'s format' -r -F
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from keys" -l password-file -d 'Take the key\'s password from the first line of a file; without this it is asked for when needed' -r -F
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from keys" -l add -d 'Public key that may sign releases. May be given several times' -r -F
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from keys" -l revoke -d 'Public key whose signatures count no more. May be given several times' -r -F
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from keys" -l serial -d 'Number that only grows; default: the seconds of now' -r
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from keys" -l expires-days -d 'Days until the list must be replaced by a newer one' -r
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from keys" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from keys" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from trust-root" -l out -d 'File to write' -r -F
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from trust-root" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from trust-root" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from help" -f -a "build" -d 'Build the archives of components from what was compiled'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from help" -f -a "index" -d 'Write `release.json` and `SHA256SUMS.txt` for the archives of a folder'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from help" -f -a "keygen" -d 'Make a key pair: `STEM.key` (secret, mode 0600) and `STEM.pub`'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from help" -f -a "sign" -d 'Sign the index and the checksum list of a release folder, or single files'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from help" -f -a "keys" -d 'Write the list of keys that may sign releases, signed by a root key'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from help" -f -a "trust-root" -d 'Write a trust root: the keys that may sign key lists'
complete -c strata -n "__fish_strata_using_subcommand package; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c strata -n "__fish_strata_using_subcommand verify-package" -l sums -d 'Check files against a list of SHA-256 sums instead; without PATH, all files of the list' -r -F
complete -c strata -n "__fish_strata_using_subcommand verify-package" -l key -d 'Whose signature of a release folder counts: a trust root (JSON) or a minisign public key' -r -F
complete -c strata -n "__fish_strata_using_subcommand verify-package" -l lowest-serial -d 'Refuse a release whose serial number is lower than this one' -r
complete -c strata -n "__fish_strata_using_subcommand verify-package" -l threads -d 'Threads that hash; default: one per processor' -r
complete -c strata -n "__fish_strata_using_subcommand verify-package" -l no-signature -d 'Check a release folder without its signature'
complete -c strata -n "__fish_strata_using_subcommand verify-package" -l allow-build-paths -d 'Note paths of the build machine in programs instead of refusing them: for one\'s own builds'
complete -c strata -n "__fish_strata_using_subcommand verify-package" -l run -d 'Also run the programs of a folder with `--version`, and compare'
complete -c strata -n "__fish_strata_using_subcommand verify-package" -l canonical -d 'Compare how archives are compressed byte by byte, whatever their size (default: up to 256 MiB)'
complete -c strata -n "__fish_strata_using_subcommand verify-package" -l json -d 'Print one JSON object'
complete -c strata -n "__fish_strata_using_subcommand verify-package" -l quiet -d 'Print nothing but findings'
complete -c strata -n "__fish_strata_using_subcommand verify-package" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand verify-package" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand completions" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand completions" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand explain" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand explain" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand version" -l json -d 'Print the whole build record as JSON'
complete -c strata -n "__fish_strata_using_subcommand version" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand version" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand internal-probe" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand internal-probe" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand internal-nvml" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand internal-nvml" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand internal-selftest" -l from -d 'Operations to leave out' -r
complete -c strata -n "__fish_strata_using_subcommand internal-selftest" -l plugin -r -F
complete -c strata -n "__fish_strata_using_subcommand internal-selftest" -l prefix -r -F
complete -c strata -n "__fish_strata_using_subcommand internal-selftest" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand internal-selftest" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand internal-reference" -l files -d 'Man pages and completions instead, as JSON: a path in the repository and the text'
complete -c strata -n "__fish_strata_using_subcommand internal-reference" -s h -l help -d 'Print help'
complete -c strata -n "__fish_strata_using_subcommand internal-reference" -s V -l version -d 'Print version'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "run" -d 'Answer a prompt, or chat when none is given'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "serve" -d 'Answer programs and people over HTTP: the interfaces of OpenAI and Anthropic, and a web page'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "tokenize" -d 'Print the token ids of texts'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "eval" -d 'Measure how far this build is from exact reference data, or a text\'s perplexity'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "bench" -d 'Measure prompt and decode speed'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "inspect" -d 'Show what a model file holds, what it needs and whether this build can run it'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "doctor" -d 'Say what this machine and this installation can do, what is wrong and what to do about it'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "ps" -d 'List the servers that run on this machine'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "stop" -d 'Ask servers of this machine to end, and wait until they have'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "package" -d 'Build, index and sign packages'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "verify-package" -d 'Prove that a package is exactly what its manifest says: files, versions, ELF, GPU code, signature'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "completions" -d 'Print a shell\'s completions of this program\'s commands and flags'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "explain" -d 'Explain an error code'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "version" -d 'Print version and build record'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "internal-probe" -d 'Load one plugin and say what it finds: what a plugin\'s first open runs in a child process'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "internal-nvml" -d 'Ask NVIDIA\'s management library about its cards: what the detector runs in a child process'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "internal-selftest" -d 'Compare one device\'s operations with the CPU\'s: what `doctor --selftest` runs in a child process'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "internal-reference" -d 'Print docs/cli.md, or the man pages and completions of packages'
complete -c strata -n "__fish_strata_using_subcommand help; and not __fish_seen_subcommand_from run serve tokenize eval bench inspect doctor ps stop package verify-package completions explain version internal-probe internal-nvml internal-selftest internal-reference help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c strata -n "__fish_strata_using_subcommand help; and __fish_seen_subcommand_from package" -f -a "build" -d 'Build the archives of components from what was compiled'
complete -c strata -n "__fish_strata_using_subcommand help; and __fish_seen_subcommand_from package" -f -a "index" -d 'Write `release.json` and `SHA256SUMS.txt` for the archives of a folder'
complete -c strata -n "__fish_strata_using_subcommand help; and __fish_seen_subcommand_from package" -f -a "keygen" -d 'Make a key pair: `STEM.key` (secret, mode 0600) and `STEM.pub`'
complete -c strata -n "__fish_strata_using_subcommand help; and __fish_seen_subcommand_from package" -f -a "sign" -d 'Sign the index and the checksum list of a release folder, or single files'
complete -c strata -n "__fish_strata_using_subcommand help; and __fish_seen_subcommand_from package" -f -a "keys" -d 'Write the list of keys that may sign releases, signed by a root key'
complete -c strata -n "__fish_strata_using_subcommand help; and __fish_seen_subcommand_from package" -f -a "trust-root" -d 'Write a trust root: the keys that may sign key lists'
