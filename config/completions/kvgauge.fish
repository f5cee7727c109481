# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_kvgauge_global_optspecs
    string join \n h/help V/version
end

function __fish_kvgauge_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_kvgauge_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_kvgauge_using_subcommand
    set -l cmd (__fish_kvgauge_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c kvgauge -n "__fish_kvgauge_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kvgauge -n "__fish_kvgauge_needs_command" -s V -l version -d 'Print version'
complete -c kvgauge -n "__fish_kvgauge_needs_command" -f -a "serve" -d 'Stand in front of a router'
complete -c kvgauge -n "__fish_kvgauge_needs_command" -f -a "demo" -d 'Try it out: a simulated deployment, kvgauge in front of it, and load'
complete -c kvgauge -n "__fish_kvgauge_needs_command" -f -a "status" -d 'Say how full the KV cache is'
complete -c kvgauge -n "__fish_kvgauge_needs_command" -f -a "doctor" -d 'Look at every page and say what is wrong and what to do'
complete -c kvgauge -n "__fish_kvgauge_needs_command" -f -a "check" -d 'Validate a settings file and say what it means'
complete -c kvgauge -n "__fish_kvgauge_needs_command" -f -a "drain" -d 'Tell a running kvgauge to drain'
complete -c kvgauge -n "__fish_kvgauge_needs_command" -f -a "completions" -d 'Print completions for a shell'
complete -c kvgauge -n "__fish_kvgauge_needs_command" -f -a "man" -d 'Print the manual page, or write all of them'
complete -c kvgauge -n "__fish_kvgauge_using_subcommand serve" -l config -d 'Settings file (TOML) [default: none]' -r -F
complete -c kvgauge -n "__fish_kvgauge_using_subcommand serve" -l listen -d 'Where clients connect [default: 127.0.0.1:30080]; `:30080` is every IPv4 address' -r
complete -c kvgauge -n "__fish_kvgauge_using_subcommand serve" -l upstream -d 'The router [default: http://127.0.0.1:30001]' -r
complete -c kvgauge -n "__fish_kvgauge_using_subcommand serve" -l admin -d 'Where operators and Prometheus connect [default: 127.0.0.1:30090]' -r
complete -c kvgauge -n "__fish_kvgauge_using_subcommand serve" -l source -d 'A page to read, once for each; replaces all default ones' -r
complete -c kvgauge -n "__fish_kvgauge_using_subcommand serve" -l workers -d 'Threads that carry traffic [default: one a core]' -r
complete -c kvgauge -n "__fish_kvgauge_using_subcommand serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kvgauge -n "__fish_kvgauge_using_subcommand demo" -l scenario -d 'What happens to the deployment' -r -f -a "calm\t'light load: decode 5 to 40 % full, next to nothing queues'
rush\t'waves of load: usage swings, queues and TTFT come and go'
full\t'more than fits: some 98 % full, requests wait, some preempted'
hot-rank\t'one decode rank of four full and queueing, the total harmless'
decode-restart\t'decode gone for 10 s each minute: unknown, then back fresh'
metrics-off\t'decode serves without --enable-metrics: usage unknown'
hung\t'decode\'s scheduler hangs now and then: its page stands still'"
complete -c kvgauge -n "__fish_kvgauge_using_subcommand demo" -l listen -d 'Where clients connect [default: 127.0.0.1:30080, or a free port where that is taken]' -r
complete -c kvgauge -n "__fish_kvgauge_using_subcommand demo" -l admin -d 'Where operators connect [default: 127.0.0.1:30090, or a free port where that is taken]' -r
complete -c kvgauge -n "__fish_kvgauge_using_subcommand demo" -l seed -d 'The same seed gives the same requests at the same times' -r
complete -c kvgauge -n "__fish_kvgauge_using_subcommand demo" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kvgauge -n "__fish_kvgauge_using_subcommand status" -l bearer-file -d 'A file with the token that they ask for, kvgauge\'s admin.bearer_file; a page\'s own bearer_file counts before it' -r -F
complete -c kvgauge -n "__fish_kvgauge_using_subcommand status" -l warn -d 'A usage from here on is a warning: a fraction from 0 to 1' -r
complete -c kvgauge -n "__fish_kvgauge_using_subcommand status" -l crit -d 'A usage from here on is critical: a fraction from 0 to 1' -r
complete -c kvgauge -n "__fish_kvgauge_using_subcommand status" -l json -d 'JSON in place of lines (docs/status.schema.json); with --watch one object a line'
complete -c kvgauge -n "__fish_kvgauge_using_subcommand status" -l watch -d 'A view that renews itself each second until it is ended (q, Esc or Ctrl-C); lines where standard output is no terminal'
complete -c kvgauge -n "__fish_kvgauge_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kvgauge -n "__fish_kvgauge_using_subcommand doctor" -l config -d 'Settings file (TOML) [default: none]' -r -F
complete -c kvgauge -n "__fish_kvgauge_using_subcommand doctor" -l upstream -d 'The router [default: http://127.0.0.1:30001]; looked at where no URL is given, too' -r
complete -c kvgauge -n "__fish_kvgauge_using_subcommand doctor" -l warmup -d 'Where an engine has no gauges yet: send one small completion through the router (64 tokens, at most 60 s for each model) and look again for up to 35 s'
complete -c kvgauge -n "__fish_kvgauge_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kvgauge -n "__fish_kvgauge_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kvgauge -n "__fish_kvgauge_using_subcommand drain" -l pid -d 'The process of kvgauge serve: 1 in a container of its own' -r
complete -c kvgauge -n "__fish_kvgauge_using_subcommand drain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kvgauge -n "__fish_kvgauge_using_subcommand completions" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kvgauge -n "__fish_kvgauge_using_subcommand man" -s h -l help -d 'Print help (see more with \'--help\')'
