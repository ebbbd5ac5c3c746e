/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What cube-gateway says to cube-fetch and its relay, and what comes back: packets on SOCK_SEQPACKET sockets, a connection for
 * one image. The first byte of a packet says what it is; who closes his end wants no more of it.
 *
 *      gateway -> relay    FETCH_NETWORKS  text: special ranges that may be connected to, with blanks between
 *      gateway -> fetch    FETCH_IMAGE     records of FetchTag; with the relay's connection, which only the gateway can make
 *      fetch -> relay      FETCH_LISTENER  with a TCP socket that listens in fetch's own network, where nothing else is
 *      fetch -> gateway    FETCH_LOG       text, cut anywhere
 *      fetch -> gateway    FETCH_FAILED    text: why; the last one
 *      fetch -> gateway    FETCH_DONE      with the directory of an OCI image layout, which goes with the connection */

#define FETCH_NETWORKS 'n'
#define FETCH_IMAGE 'i'
#define FETCH_LISTENER 's'
#define FETCH_LOG 'l'
#define FETCH_FAILED 'f'
#define FETCH_DONE 'd'

/* A password may be a file of a few KiB. */
#define FETCH_PACKET_MAX 65536U
#define FETCH_TEXT_MAX 4096U
/* Those that may be connected to besides the internet. */
#define FETCH_NETWORKS_MAX 64U

typedef enum FetchTag {
        FETCH_TAG_NAME = 1,     /* HOST/NAME[:TAG|@DIGEST] */
        FETCH_TAG_REGISTRY,     /* HOST[:PORT], the one that the user and password are for */
        FETCH_TAG_USER,         /* both may be absent */
        FETCH_TAG_PASSWORD,
        FETCH_TAG_BYTES_MAX,    /* u64: of all its files, as they are kept */
} FetchTag;
