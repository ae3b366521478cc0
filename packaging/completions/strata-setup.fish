# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_strata_setup_global_optspecs
    string join \n backend= target= gpus= model= no-model models-dir= release= offline from= key= allow-unsigned allow-expired allow-downgrade ca-file= lock= locked update adopt= audit download-only to= print dry-run again allow-unproven link no-keep-archives no-start root= catalog= prefix= json y/yes v/verbose progress= wait= h/help V/version
end

function __fish_strata_setup_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_strata_setup_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_strata_setup_using_subcommand
    set -l cmd (__fish_strata_setup_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c strata-setup -n "__fish_strata_setup_needs_command" -l backend -d 'What computes. `auto` takes what the cards that are here need; a named one is never replaced by another' -r -f -a "auto\t''
cpu\t''
cuda\t''
hip\t''"
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l target -d 'Install for a card that need not be here: `gfx906`, `gfx1100`, `sm_90`. Without such a card the plugin cannot be tried and is recorded as unproven' -r
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l gpus -d 'GPUs to count on, by number in `detect`, PCI address or unique id; default: all that fit' -r
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l model -d 'Model: a name of the catalog (`list --models`), `hf:owner/repo@revision/file.gguf`, `hf:owner/repo:Q4_K_M`, an `https:` address, or the path of a GGUF file that is used where it lies. May be given several times' -r
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l models-dir -d 'Where models are kept; default: `models` in the prefix' -r -F
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l release -d 'Release to install from: a folder, or the address of one' -r
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l from -d 'Folder that `--download-only` left' -r -F
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l key -d 'Believe this key (a minisign public key or trust root) and pin it for the prefix' -r -F
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l ca-file -d 'Certificates to trust beside the system\'s (PEM), for networks with their own authority' -r -F
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l lock -d 'Lock file: what the sources of models were resolved to (a hub\'s commit, sizes, digests), so that the same command brings the same bytes later; default: `strata.lock` in the folder that the models go to' -r -F
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l adopt -d 'File that may hold bytes of what is fetched: an unfinished download of curl, wget, aria2c or hf, or an older file. Its good chunks are copied, and it stays as it is. A folder: its files that have the right names' -r -F
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l to -d 'Where `--download-only` puts it; default: `strata-VERSION` here' -r -F
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l root -d 'Read host facts below this folder instead of `/`: for trying things out and for tests' -r -F
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l catalog -d 'Model catalog to use instead of the built-in one' -r -F
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l prefix -d 'Folder of the installation; default: the one that this program lies in, else `$XDG_DATA_HOME/strata` or `~/.local/share/strata`. Root is never needed' -r -F
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l progress -d 'How progress is shown: bars on a terminal and lines elsewhere, or as named; `json` is one event a line on standard error' -r -f -a "auto\t''
bars\t''
lines\t''
json\t''
none\t''"
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l wait -d 'Wait so long for another setup that is changing the same prefix' -r
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l no-model -d 'No model'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l offline -d 'Open no socket: everything comes from the folder of `--from`'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l allow-unsigned -d 'Install a release that is not signed; the receipt records it'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l allow-expired -d 'Install a release whose index has expired'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l allow-downgrade -d 'Install a release that is older than what was installed here'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l locked -d 'Fetch no model file that the lock file does not hold'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l update -d 'Resolve sources anew and write what is there now into the lock file'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l audit -d 'Read again what is there of unfinished files before it counts'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l download-only -d 'Fetch, check and leave a folder that `--offline --from DIR` installs on any machine. No GPU and no driver is needed, and no question is asked'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l print -d 'With `--download-only`: fetch nothing but the index, and print how to do the rest by hand'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l dry-run -d 'Print the plan and change nothing'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l again -d 'Install once more although the same is installed'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l allow-unproven -d 'Install a GPU plugin that does not pass its check; the receipt records it'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l link -d 'Link the program into `~/.local/bin`'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l no-keep-archives -d 'Do not keep the archives for repairs without the network'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l no-start -d 'Do not offer to start a model at the end'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -l json -d 'Print one JSON document on standard output'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -s y -l yes -d 'Take the default of every question'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -s v -l verbose -d 'Say more about what is done and why'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -s h -l help -d 'Print help'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -s V -l version -d 'Print version'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -f -a "install" -d 'Install, update, or bring models into an installation'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -f -a "plan" -d 'Print what `install` would do and why, and change nothing'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -f -a "fetch" -d 'Fetch without installing: the same as `--download-only`'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -f -a "detect" -d 'Show what this machine has and what would run on it'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -f -a "list" -d 'Show what is installed; with `--models` the catalog'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -f -a "rollback" -d 'Go back to the generation before, without the network'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -f -a "repair" -d 'Check every installed file and model, and make whole what is damaged: of a model only the broken chunks are fetched again'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -f -a "uninstall" -d 'Remove the installation: only what its receipts list'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -f -a "gc" -d 'Remove old generations and archives that no generation came from'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -f -a "self-update" -d 'Bring the newest release of what is installed into the prefix'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -f -a "completions" -d 'Print a shell\'s completions of this program\'s commands and flags'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -f -a "internal-reference" -d 'Print docs/setup-cli.md, or the man pages and completions of packages'
complete -c strata-setup -n "__fish_strata_setup_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l backend -d 'What computes. `auto` takes what the cards that are here need; a named one is never replaced by another' -r -f -a "auto\t''
cpu\t''
cuda\t''
hip\t''"
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l target -d 'Install for a card that need not be here: `gfx906`, `gfx1100`, `sm_90`. Without such a card the plugin cannot be tried and is recorded as unproven' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l gpus -d 'GPUs to count on, by number in `detect`, PCI address or unique id; default: all that fit' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l model -d 'Model: a name of the catalog (`list --models`), `hf:owner/repo@revision/file.gguf`, `hf:owner/repo:Q4_K_M`, an `https:` address, or the path of a GGUF file that is used where it lies. May be given several times' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l models-dir -d 'Where models are kept; default: `models` in the prefix' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l release -d 'Release to install from: a folder, or the address of one' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l from -d 'Folder that `--download-only` left' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l key -d 'Believe this key (a minisign public key or trust root) and pin it for the prefix' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l ca-file -d 'Certificates to trust beside the system\'s (PEM), for networks with their own authority' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l lock -d 'Lock file: what the sources of models were resolved to (a hub\'s commit, sizes, digests), so that the same command brings the same bytes later; default: `strata.lock` in the folder that the models go to' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l adopt -d 'File that may hold bytes of what is fetched: an unfinished download of curl, wget, aria2c or hf, or an older file. Its good chunks are copied, and it stays as it is. A folder: its files that have the right names' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l to -d 'Where `--download-only` puts it; default: `strata-VERSION` here' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l root -d 'Read host facts below this folder instead of `/`: for trying things out and for tests' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l catalog -d 'Model catalog to use instead of the built-in one' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l prefix -d 'Folder of the installation; default: the one that this program lies in, else `$XDG_DATA_HOME/strata` or `~/.local/share/strata`. Root is never needed' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l progress -d 'How progress is shown: bars on a terminal and lines elsewhere, or as named; `json` is one event a line on standard error' -r -f -a "auto\t''
bars\t''
lines\t''
json\t''
none\t''"
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l wait -d 'Wait so long for another setup that is changing the same prefix' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l no-model -d 'No model'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l offline -d 'Open no socket: everything comes from the folder of `--from`'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l allow-unsigned -d 'Install a release that is not signed; the receipt records it'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l allow-expired -d 'Install a release whose index has expired'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l allow-downgrade -d 'Install a release that is older than what was installed here'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l locked -d 'Fetch no model file that the lock file does not hold'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l update -d 'Resolve sources anew and write what is there now into the lock file'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l audit -d 'Read again what is there of unfinished files before it counts'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l download-only -d 'Fetch, check and leave a folder that `--offline --from DIR` installs on any machine. No GPU and no driver is needed, and no question is asked'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l print -d 'With `--download-only`: fetch nothing but the index, and print how to do the rest by hand'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l dry-run -d 'Print the plan and change nothing'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l again -d 'Install once more although the same is installed'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l allow-unproven -d 'Install a GPU plugin that does not pass its check; the receipt records it'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l link -d 'Link the program into `~/.local/bin`'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l no-keep-archives -d 'Do not keep the archives for repairs without the network'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l no-start -d 'Do not offer to start a model at the end'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -l json -d 'Print one JSON document on standard output'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -s y -l yes -d 'Take the default of every question'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -s v -l verbose -d 'Say more about what is done and why'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -s h -l help -d 'Print help'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand install" -s V -l version -d 'Print version'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l backend -d 'What computes. `auto` takes what the cards that are here need; a named one is never replaced by another' -r -f -a "auto\t''
cpu\t''
cuda\t''
hip\t''"
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l target -d 'Install for a card that need not be here: `gfx906`, `gfx1100`, `sm_90`. Without such a card the plugin cannot be tried and is recorded as unproven' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l gpus -d 'GPUs to count on, by number in `detect`, PCI address or unique id; default: all that fit' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l model -d 'Model: a name of the catalog (`list --models`), `hf:owner/repo@revision/file.gguf`, `hf:owner/repo:Q4_K_M`, an `https:` address, or the path of a GGUF file that is used where it lies. May be given several times' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l models-dir -d 'Where models are kept; default: `models` in the prefix' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l release -d 'Release to install from: a folder, or the address of one' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l from -d 'Folder that `--download-only` left' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l key -d 'Believe this key (a minisign public key or trust root) and pin it for the prefix' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l ca-file -d 'Certificates to trust beside the system\'s (PEM), for networks with their own authority' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l lock -d 'Lock file: what the sources of models were resolved to (a hub\'s commit, sizes, digests), so that the same command brings the same bytes later; default: `strata.lock` in the folder that the models go to' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l adopt -d 'File that may hold bytes of what is fetched: an unfinished download of curl, wget, aria2c or hf, or an older file. Its good chunks are copied, and it stays as it is. A folder: its files that have the right names' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l to -d 'Where `--download-only` puts it; default: `strata-VERSION` here' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l root -d 'Read host facts below this folder instead of `/`: for trying things out and for tests' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l catalog -d 'Model catalog to use instead of the built-in one' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l prefix -d 'Folder of the installation; default: the one that this program lies in, else `$XDG_DATA_HOME/strata` or `~/.local/share/strata`. Root is never needed' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l progress -d 'How progress is shown: bars on a terminal and lines elsewhere, or as named; `json` is one event a line on standard error' -r -f -a "auto\t''
bars\t''
lines\t''
json\t''
none\t''"
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l wait -d 'Wait so long for another setup that is changing the same prefix' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l no-model -d 'No model'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l offline -d 'Open no socket: everything comes from the folder of `--from`'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l allow-unsigned -d 'Install a release that is not signed; the receipt records it'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l allow-expired -d 'Install a release whose index has expired'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l allow-downgrade -d 'Install a release that is older than what was installed here'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l locked -d 'Fetch no model file that the lock file does not hold'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l update -d 'Resolve sources anew and write what is there now into the lock file'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l audit -d 'Read again what is there of unfinished files before it counts'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l download-only -d 'Fetch, check and leave a folder that `--offline --from DIR` installs on any machine. No GPU and no driver is needed, and no question is asked'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l print -d 'With `--download-only`: fetch nothing but the index, and print how to do the rest by hand'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l dry-run -d 'Print the plan and change nothing'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l again -d 'Install once more although the same is installed'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l allow-unproven -d 'Install a GPU plugin that does not pass its check; the receipt records it'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l link -d 'Link the program into `~/.local/bin`'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l no-keep-archives -d 'Do not keep the archives for repairs without the network'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l no-start -d 'Do not offer to start a model at the end'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -l json -d 'Print one JSON document on standard output'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -s y -l yes -d 'Take the default of every question'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -s v -l verbose -d 'Say more about what is done and why'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -s h -l help -d 'Print help'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand plan" -s V -l version -d 'Print version'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l backend -d 'What computes. `auto` takes what the cards that are here need; a named one is never replaced by another' -r -f -a "auto\t''
cpu\t''
cuda\t''
hip\t''"
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l target -d 'Install for a card that need not be here: `gfx906`, `gfx1100`, `sm_90`. Without such a card the plugin cannot be tried and is recorded as unproven' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l gpus -d 'GPUs to count on, by number in `detect`, PCI address or unique id; default: all that fit' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l model -d 'Model: a name of the catalog (`list --models`), `hf:owner/repo@revision/file.gguf`, `hf:owner/repo:Q4_K_M`, an `https:` address, or the path of a GGUF file that is used where it lies. May be given several times' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l models-dir -d 'Where models are kept; default: `models` in the prefix' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l release -d 'Release to install from: a folder, or the address of one' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l from -d 'Folder that `--download-only` left' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l key -d 'Believe this key (a minisign public key or trust root) and pin it for the prefix' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l ca-file -d 'Certificates to trust beside the system\'s (PEM), for networks with their own authority' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l lock -d 'Lock file: what the sources of models were resolved to (a hub\'s commit, sizes, digests), so that the same command brings the same bytes later; default: `strata.lock` in the folder that the models go to' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l adopt -d 'File that may hold bytes of what is fetched: an unfinished download of curl, wget, aria2c or hf, or an older file. Its good chunks are copied, and it stays as it is. A folder: its files that have the right names' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l to -d 'Where `--download-only` puts it; default: `strata-VERSION` here' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l root -d 'Read host facts below this folder instead of `/`: for trying things out and for tests' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l catalog -d 'Model catalog to use instead of the built-in one' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l prefix -d 'Folder of the installation; default: the one that this program lies in, else `$XDG_DATA_HOME/strata` or `~/.local/share/strata`. Root is never needed' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l progress -d 'How progress is shown: bars on a terminal and lines elsewhere, or as named; `json` is one event a line on standard error' -r -f -a "auto\t''
bars\t''
lines\t''
json\t''
none\t''"
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l wait -d 'Wait so long for another setup that is changing the same prefix' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l no-model -d 'No model'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l offline -d 'Open no socket: everything comes from the folder of `--from`'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l allow-unsigned -d 'Install a release that is not signed; the receipt records it'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l allow-expired -d 'Install a release whose index has expired'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l allow-downgrade -d 'Install a release that is older than what was installed here'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l locked -d 'Fetch no model file that the lock file does not hold'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l update -d 'Resolve sources anew and write what is there now into the lock file'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l audit -d 'Read again what is there of unfinished files before it counts'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l download-only -d 'Fetch, check and leave a folder that `--offline --from DIR` installs on any machine. No GPU and no driver is needed, and no question is asked'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l print -d 'With `--download-only`: fetch nothing but the index, and print how to do the rest by hand'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l dry-run -d 'Print the plan and change nothing'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l again -d 'Install once more although the same is installed'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l allow-unproven -d 'Install a GPU plugin that does not pass its check; the receipt records it'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l link -d 'Link the program into `~/.local/bin`'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l no-keep-archives -d 'Do not keep the archives for repairs without the network'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l no-start -d 'Do not offer to start a model at the end'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -l json -d 'Print one JSON document on standard output'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -s y -l yes -d 'Take the default of every question'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -s v -l verbose -d 'Say more about what is done and why'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -s h -l help -d 'Print help'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand fetch" -s V -l version -d 'Print version'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand detect" -l root -d 'Read below this folder instead of `/`' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand detect" -l prefix -d 'Folder of the installation; default: the one that this program lies in, else `$XDG_DATA_HOME/strata` or `~/.local/share/strata`. Root is never needed' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand detect" -l progress -d 'How progress is shown: bars on a terminal and lines elsewhere, or as named; `json` is one event a line on standard error' -r -f -a "auto\t''
bars\t''
lines\t''
json\t''
none\t''"
complete -c strata-setup -n "__fish_strata_setup_using_subcommand detect" -l wait -d 'Wait so long for another setup that is changing the same prefix' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand detect" -l json -d 'Print one JSON document on standard output'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand detect" -s y -l yes -d 'Take the default of every question'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand detect" -s v -l verbose -d 'Say more about what is done and why'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand detect" -s h -l help -d 'Print help'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand detect" -s V -l version -d 'Print version'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand list" -l prefix -d 'Folder of the installation; default: the one that this program lies in, else `$XDG_DATA_HOME/strata` or `~/.local/share/strata`. Root is never needed' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand list" -l progress -d 'How progress is shown: bars on a terminal and lines elsewhere, or as named; `json` is one event a line on standard error' -r -f -a "auto\t''
bars\t''
lines\t''
json\t''
none\t''"
complete -c strata-setup -n "__fish_strata_setup_using_subcommand list" -l wait -d 'Wait so long for another setup that is changing the same prefix' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand list" -l models -d 'The catalog: models by name, with size and whether they fit this machine'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand list" -l check -d 'Check every installed file against its receipt'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand list" -l json -d 'Print one JSON document on standard output'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand list" -s y -l yes -d 'Take the default of every question'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand list" -s v -l verbose -d 'Say more about what is done and why'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand list" -s h -l help -d 'Print help'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand list" -s V -l version -d 'Print version'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand rollback" -l to -d 'Generation to go to; default: the one before' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand rollback" -l prefix -d 'Folder of the installation; default: the one that this program lies in, else `$XDG_DATA_HOME/strata` or `~/.local/share/strata`. Root is never needed' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand rollback" -l progress -d 'How progress is shown: bars on a terminal and lines elsewhere, or as named; `json` is one event a line on standard error' -r -f -a "auto\t''
bars\t''
lines\t''
json\t''
none\t''"
complete -c strata-setup -n "__fish_strata_setup_using_subcommand rollback" -l wait -d 'Wait so long for another setup that is changing the same prefix' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand rollback" -l json -d 'Print one JSON document on standard output'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand rollback" -s y -l yes -d 'Take the default of every question'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand rollback" -s v -l verbose -d 'Say more about what is done and why'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand rollback" -s h -l help -d 'Print help'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand rollback" -s V -l version -d 'Print version'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand repair" -l from -d 'Folder with the archives; default: the kept ones, then the release that it came from' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand repair" -l release -d 'Release to fetch from' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand repair" -l ca-file -d 'Certificates to trust beside the system\'s (PEM)' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand repair" -l prefix -d 'Folder of the installation; default: the one that this program lies in, else `$XDG_DATA_HOME/strata` or `~/.local/share/strata`. Root is never needed' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand repair" -l progress -d 'How progress is shown: bars on a terminal and lines elsewhere, or as named; `json` is one event a line on standard error' -r -f -a "auto\t''
bars\t''
lines\t''
json\t''
none\t''"
complete -c strata-setup -n "__fish_strata_setup_using_subcommand repair" -l wait -d 'Wait so long for another setup that is changing the same prefix' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand repair" -l no-models -d 'Leave models out: reading them takes time'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand repair" -l dry-run -d 'Look and say, change nothing'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand repair" -l json -d 'Print one JSON document on standard output'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand repair" -s y -l yes -d 'Take the default of every question'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand repair" -s v -l verbose -d 'Say more about what is done and why'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand repair" -s h -l help -d 'Print help'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand repair" -s V -l version -d 'Print version'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand uninstall" -l prefix -d 'Folder of the installation; default: the one that this program lies in, else `$XDG_DATA_HOME/strata` or `~/.local/share/strata`. Root is never needed' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand uninstall" -l progress -d 'How progress is shown: bars on a terminal and lines elsewhere, or as named; `json` is one event a line on standard error' -r -f -a "auto\t''
bars\t''
lines\t''
json\t''
none\t''"
complete -c strata-setup -n "__fish_strata_setup_using_subcommand uninstall" -l wait -d 'Wait so long for another setup that is changing the same prefix' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand uninstall" -l models -d 'Remove the models that setup fetched too'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand uninstall" -l changed -d 'Remove installed files also when they were changed since'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand uninstall" -l dry-run -d 'Say what would go and change nothing'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand uninstall" -l json -d 'Print one JSON document on standard output'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand uninstall" -s y -l yes -d 'Take the default of every question'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand uninstall" -s v -l verbose -d 'Say more about what is done and why'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand uninstall" -s h -l help -d 'Print help'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand uninstall" -s V -l version -d 'Print version'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand gc" -l keep -d 'Generations to keep beside the current one' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand gc" -l prefix -d 'Folder of the installation; default: the one that this program lies in, else `$XDG_DATA_HOME/strata` or `~/.local/share/strata`. Root is never needed' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand gc" -l progress -d 'How progress is shown: bars on a terminal and lines elsewhere, or as named; `json` is one event a line on standard error' -r -f -a "auto\t''
bars\t''
lines\t''
json\t''
none\t''"
complete -c strata-setup -n "__fish_strata_setup_using_subcommand gc" -l wait -d 'Wait so long for another setup that is changing the same prefix' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand gc" -l downloads -d 'Remove what was fetched and not installed too, unfinished downloads included'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand gc" -l json -d 'Print one JSON document on standard output'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand gc" -s y -l yes -d 'Take the default of every question'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand gc" -s v -l verbose -d 'Say more about what is done and why'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand gc" -s h -l help -d 'Print help'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand gc" -s V -l version -d 'Print version'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l backend -d 'What computes. `auto` takes what the cards that are here need; a named one is never replaced by another' -r -f -a "auto\t''
cpu\t''
cuda\t''
hip\t''"
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l target -d 'Install for a card that need not be here: `gfx906`, `gfx1100`, `sm_90`. Without such a card the plugin cannot be tried and is recorded as unproven' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l gpus -d 'GPUs to count on, by number in `detect`, PCI address or unique id; default: all that fit' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l model -d 'Model: a name of the catalog (`list --models`), `hf:owner/repo@revision/file.gguf`, `hf:owner/repo:Q4_K_M`, an `https:` address, or the path of a GGUF file that is used where it lies. May be given several times' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l models-dir -d 'Where models are kept; default: `models` in the prefix' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l release -d 'Release to install from: a folder, or the address of one' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l from -d 'Folder that `--download-only` left' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l key -d 'Believe this key (a minisign public key or trust root) and pin it for the prefix' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l ca-file -d 'Certificates to trust beside the system\'s (PEM), for networks with their own authority' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l lock -d 'Lock file: what the sources of models were resolved to (a hub\'s commit, sizes, digests), so that the same command brings the same bytes later; default: `strata.lock` in the folder that the models go to' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l adopt -d 'File that may hold bytes of what is fetched: an unfinished download of curl, wget, aria2c or hf, or an older file. Its good chunks are copied, and it stays as it is. A folder: its files that have the right names' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l to -d 'Where `--download-only` puts it; default: `strata-VERSION` here' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l root -d 'Read host facts below this folder instead of `/`: for trying things out and for tests' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l catalog -d 'Model catalog to use instead of the built-in one' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l prefix -d 'Folder of the installation; default: the one that this program lies in, else `$XDG_DATA_HOME/strata` or `~/.local/share/strata`. Root is never needed' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l progress -d 'How progress is shown: bars on a terminal and lines elsewhere, or as named; `json` is one event a line on standard error' -r -f -a "auto\t''
bars\t''
lines\t''
json\t''
none\t''"
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l wait -d 'Wait so long for another setup that is changing the same prefix' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l no-model -d 'No model'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l offline -d 'Open no socket: everything comes from the folder of `--from`'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l allow-unsigned -d 'Install a release that is not signed; the receipt records it'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l allow-expired -d 'Install a release whose index has expired'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l allow-downgrade -d 'Install a release that is older than what was installed here'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l locked -d 'Fetch no model file that the lock file does not hold'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l update -d 'Resolve sources anew and write what is there now into the lock file'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l audit -d 'Read again what is there of unfinished files before it counts'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l download-only -d 'Fetch, check and leave a folder that `--offline --from DIR` installs on any machine. No GPU and no driver is needed, and no question is asked'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l print -d 'With `--download-only`: fetch nothing but the index, and print how to do the rest by hand'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l dry-run -d 'Print the plan and change nothing'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l again -d 'Install once more although the same is installed'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l allow-unproven -d 'Install a GPU plugin that does not pass its check; the receipt records it'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l link -d 'Link the program into `~/.local/bin`'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l no-keep-archives -d 'Do not keep the archives for repairs without the network'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l no-start -d 'Do not offer to start a model at the end'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -l json -d 'Print one JSON document on standard output'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -s y -l yes -d 'Take the default of every question'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -s v -l verbose -d 'Say more about what is done and why'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -s h -l help -d 'Print help'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand self-update" -s V -l version -d 'Print version'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand completions" -l prefix -d 'Folder of the installation; default: the one that this program lies in, else `$XDG_DATA_HOME/strata` or `~/.local/share/strata`. Root is never needed' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand completions" -l progress -d 'How progress is shown: bars on a terminal and lines elsewhere, or as named; `json` is one event a line on standard error' -r -f -a "auto\t''
bars\t''
lines\t''
json\t''
none\t''"
complete -c strata-setup -n "__fish_strata_setup_using_subcommand completions" -l wait -d 'Wait so long for another setup that is changing the same prefix' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand completions" -l json -d 'Print one JSON document on standard output'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand completions" -s y -l yes -d 'Take the default of every question'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand completions" -s v -l verbose -d 'Say more about what is done and why'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand completions" -s h -l help -d 'Print help'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand completions" -s V -l version -d 'Print version'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand internal-reference" -l prefix -d 'Folder of the installation; default: the one that this program lies in, else `$XDG_DATA_HOME/strata` or `~/.local/share/strata`. Root is never needed' -r -F
complete -c strata-setup -n "__fish_strata_setup_using_subcommand internal-reference" -l progress -d 'How progress is shown: bars on a terminal and lines elsewhere, or as named; `json` is one event a line on standard error' -r -f -a "auto\t''
bars\t''
lines\t''
json\t''
none\t''"
complete -c strata-setup -n "__fish_strata_setup_using_subcommand internal-reference" -l wait -d 'Wait so long for another setup that is changing the same prefix' -r
complete -c strata-setup -n "__fish_strata_setup_using_subcommand internal-reference" -l files -d 'Man pages and completions instead, as JSON: a path in the repository and the text'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand internal-reference" -l json -d 'Print one JSON document on standard output'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand internal-reference" -s y -l yes -d 'Take the default of every question'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand internal-reference" -s v -l verbose -d 'Say more about what is done and why'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand internal-reference" -s h -l help -d 'Print help'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand internal-reference" -s V -l version -d 'Print version'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand help; and not __fish_seen_subcommand_from install plan fetch detect list rollback repair uninstall gc self-update completions internal-reference help" -f -a "install" -d 'Install, update, or bring models into an installation'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand help; and not __fish_seen_subcommand_from install plan fetch detect list rollback repair uninstall gc self-update completions internal-reference help" -f -a "plan" -d 'Print what `install` would do and why, and change nothing'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand help; and not __fish_seen_subcommand_from install plan fetch detect list rollback repair uninstall gc self-update completions internal-reference help" -f -a "fetch" -d 'Fetch without installing: the same as `--download-only`'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand help; and not __fish_seen_subcommand_from install plan fetch detect list rollback repair uninstall gc self-update completions internal-reference help" -f -a "detect" -d 'Show what this machine has and what would run on it'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand help; and not __fish_seen_subcommand_from install plan fetch detect list rollback repair uninstall gc self-update completions internal-reference help" -f -a "list" -d 'Show what is installed; with `--models` the catalog'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand help; and not __fish_seen_subcommand_from install plan fetch detect list rollback repair uninstall gc self-update completions internal-reference help" -f -a "rollback" -d 'Go back to the generation before, without the network'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand help; and not __fish_seen_subcommand_from install plan fetch detect list rollback repair uninstall gc self-update completions internal-reference help" -f -a "repair" -d 'Check every installed file and model, and make whole what is damaged: of a model only the broken chunks are fetched again'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand help; and not __fish_seen_subcommand_from install plan fetch detect list rollback repair uninstall gc self-update completions internal-reference help" -f -a "uninstall" -d 'Remove the installation: only what its receipts list'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand help; and not __fish_seen_subcommand_from install plan fetch detect list rollback repair uninstall gc self-update completions internal-reference help" -f -a "gc" -d 'Remove old generations and archives that no generation came from'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand help; and not __fish_seen_subcommand_from install plan fetch detect list rollback repair uninstall gc self-update completions internal-reference help" -f -a "self-update" -d 'Bring the newest release of what is installed into the prefix'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand help; and not __fish_seen_subcommand_from install plan fetch detect list rollback repair uninstall gc self-update completions internal-reference help" -f -a "completions" -d 'Print a shell\'s completions of this program\'s commands and flags'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand help; and not __fish_seen_subcommand_from install plan fetch detect list rollback repair uninstall gc self-update completions internal-reference help" -f -a "internal-reference" -d 'Print docs/setup-cli.md, or the man pages and completions of packages'
complete -c strata-setup -n "__fish_strata_setup_using_subcommand help; and not __fish_seen_subcommand_from install plan fetch detect list rollback repair uninstall gc self-update completions internal-reference help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
