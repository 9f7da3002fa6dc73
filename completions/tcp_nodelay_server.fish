complete -c tcp_nodelay_server -l buffers -d 'Number of buffers of 2 bytes in a logical packet; the client needs the same number' -r
complete -c tcp_nodelay_server -l connections -d 'Exit after this many connections' -r
complete -c tcp_nodelay_server -l bind -d 'Listen on this address or host name only, instead of on all of IPv6 and IPv4' -r
complete -c tcp_nodelay_server -l json -d 'Print one JSON object for each connection instead'
complete -c tcp_nodelay_server -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tcp_nodelay_server -s V -l version -d 'Print version'
