complete -c tcp_nodelay_client -s N -l nr_logical_packets -d 'Number of logical packets to send' -r
complete -c tcp_nodelay_client -s p -l port -d 'Port of the server' -r
complete -c tcp_nodelay_client -s r -l rate -d 'Send this many packets a second at most, each at its own time, instead of each as soon as the one before was answered' -r
complete -c tcp_nodelay_client -l buffers -d 'Number of buffers of 2 bytes in a logical packet; the server needs the same number' -r
complete -c tcp_nodelay_client -s c -l cork -d 'Cork the socket (TCP_CORK) before each logical packet and uncork it after'
complete -c tcp_nodelay_client -l more -d 'Send all writes of a logical packet but the last with MSG_MORE: what a program can do at best without gathering its writes (not in the published client)'
complete -c tcp_nodelay_client -s H -l header_plus_payload -d 'Send each logical packet in two writes: the first 3 buffers, then the rest'
complete -c tcp_nodelay_client -l sendfile -d 'Send each logical packet as --header_plus_payload does, and the payload out of a file, with sendfile(2) (not in the published client)'
complete -c tcp_nodelay_client -s n -l no_delay -d 'Set TCP_NODELAY: send each write at once'
complete -c tcp_nodelay_client -l no_reply -d 'Do not wait for replies: for a server that was started with the word rate'
complete -c tcp_nodelay_client -s s -l single_request -d 'Send each logical packet in a single write'
complete -c tcp_nodelay_client -l writev -d 'Send each logical packet with one writev(2) of its buffers, or one for each 1024 of them (not in the published client)'
complete -c tcp_nodelay_client -s v -l verbose -d 'Print packets, writes a packet, time and option as well, not only the bytes per millisecond'
complete -c tcp_nodelay_client -l json -d 'Print one JSON object instead, with the distribution of the latencies'
complete -c tcp_nodelay_client -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tcp_nodelay_client -s V -l version -d 'Print version'
