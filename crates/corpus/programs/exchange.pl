#!/usr/bin/perl
# The same exchange as exchange.py, written as Perl programs do it: an autoflushed handle, and one
# print for each piece, so that each print is one write.
use strict;
use warnings;
use Getopt::Long;
use IO::Socket::IP;
use Socket qw(IPPROTO_TCP TCP_NODELAY);
use Time::HiRes qw(time sleep);

my $role = shift;
my ($host, $port, $read, $write, $count, $gap, $nodelay) = ('', 0, 0, '', 20, 0, 0);
GetOptions('host=s' => \$host, 'port=i' => \$port, 'read=i' => \$read, 'write=s' => \$write,
    'count=i' => \$count, 'gap=f' => \$gap, 'nodelay' => \$nodelay) or exit 2;
my @pieces = split /,/, $write;

sub receive {
    my ($sock) = @_;
    my $left = $read;
    while ($left > 0) {
        my $got = sysread($sock, my $data, $left);
        return 0 unless $got;
        $left -= $got;
    }
    return 1;
}

sub prepare {
    my ($sock) = @_;
    $sock->autoflush(1);
    setsockopt($sock, IPPROTO_TCP, TCP_NODELAY, 1) if $nodelay;
}

sub answer {
    my ($sock) = @_;
    print {$sock} 'x' x $_ for @pieces;
}

if ($role eq 'server') {
    my $listener = IO::Socket::IP->new(LocalHost => $host, LocalPort => $port, Listen => 16,
        ReuseAddr => 1) or die "listen: $@";
    $SIG{CHLD} = 'IGNORE';
    while (my $sock = $listener->accept) {
        next if fork;
        prepare($sock);
        while (receive($sock)) { answer($sock) }
        exit 0;
    }
} else {
    my $sock = IO::Socket::IP->new(PeerHost => $host, PeerPort => $port) or die "connect: $@";
    prepare($sock);
    my @each;
    for (1 .. $count) {
        my $began = time;
        answer($sock);
        receive($sock) or die 'the server closed the connection';
        push @each, sprintf '%.3f', (time - $began) * 1000;
        sleep($gap / 1000) if $gap;
    }
    printf "{\"ports\": [%d], \"each_ms\": [%s]}\n", $sock->sockport, join(', ', @each);
}
