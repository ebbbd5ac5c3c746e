/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* org.freedesktop.LogControl1: systemctl service-log-level cubed.service debug. */

#include <systemd/sd-bus.h>

int log_control_attach(sd_bus *bus);
