// The socket options of UDP_SEGMENT and UDP_GRO, also where the C library is older than they are.
#pragma once

#include <netinet/udp.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
