/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The files of the ingress: what cube-ingress.service and cube-gateway read, a certificate and the authority that signed it.
 * Written by root, replaced as a whole. */

#include <stdbool.h>
#include <stdint.h>

#define INGRESS_VARIABLES "/etc/cubed/ingress.conf"
#define INGRESS_DIRECTORY "/etc/cubed/ingress"
#define INGRESS_CA INGRESS_DIRECTORY "/ca.pem"
#define INGRESS_HOST_MAX 254U
#define INGRESS_ADDRESS_MAX 64U

typedef struct IngressSpec {
        char domain[INGRESS_HOST_MAX];     /* "": by headers alone, without TLS */
        char http[INGRESS_ADDRESS_MAX];    /* ADDRESS:PORT */
        char https[INGRESS_ADDRESS_MAX];   /* "": none */
} IngressSpec;

/* ADDRESS, ADDRESS:PORT, [ADDRESS6], [ADDRESS6]:PORT or PORT. */
int ingress_address_parse(const char *s, uint16_t default_port, char ret[static INGRESS_ADDRESS_MAX]);
bool ingress_address_is_loopback(const char *address);
/* haproxy would listen with both on one port, and connections go to either. */
bool ingress_addresses_collide(const char *a, const char *b);
const char *ingress_address_port(const char *address);
bool ingress_domain_valid(const char *s);

/* root is "" or a directory that is one. Each says what is wrong. */
int ingress_files_write(const char *root, const IngressSpec *s);
/* -ENOENT: there is none. */
int ingress_files_read(const char *root, IngressSpec *ret);
int ingress_files_remove(const char *root);
/* An authority where there is none for that domain yet, and a new certificate of it. */
int ingress_certificate_make(const char *root, const char *domain);
