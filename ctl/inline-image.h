/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Pictures in terminals that show them among the text. Those that are known take the file as it is, in base64. */

#include <stdio.h>

#include "base/macros.h"

typedef enum InlineImages {
        INLINE_NONE,
        INLINE_KITTY,   /* also Ghostty; PNG alone */
        INLINE_ITERM,   /* iTerm2 and WezTerm */
} InlineImages;

/* As the environment has it; none where stdout is no terminal. */
InlineImages inline_images_of_terminal(void);

/* -EOPNOTSUPP for a picture that is not for this one. */
int inline_image_show(FILE *f, InlineImages how, const uint8_t *data, size_t size);
