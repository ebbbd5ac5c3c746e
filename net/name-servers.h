/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The name servers of a resolv.conf, as they are now. Embedded in the Upstream. */

#include <netinet/in.h>
#include <sys/stat.h>

#include "base/macros.h"

#define NAME_SERVERS_MAX 3U

typedef union ServerAddress {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
} ServerAddress;

typedef struct NameServers {
        ServerAddress servers[NAME_SERVERS_MAX];
        size_t n;
        struct stat seen;
} NameServers;

/* Reads path if it is not what was read before. Without a server in it, or without the file: the one of this host, as
 * resolv.conf(5) has it. */
void name_servers_refresh(NameServers *s, const char *path, uint16_t port);
socklen_t server_address_size(const ServerAddress *a);
