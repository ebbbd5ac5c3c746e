/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The words behind `template`. */

int template_build(int argc, char **argv);
int template_export(int argc, char **argv);
int template_import(int argc, char **argv);
