/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#define CODE_HELP                                                                       \
        "     --sandbox=ID         In this one; else in a new one, which is ended afterwards\n" \
        "     --keep               Leave the new one running\n"                         \
        "     --context=ID|new     With the variables of this context of the sandbox\n" \
        "     --language=NAME      python, javascript, typescript, r or bash\n"         \
        "  -e --env=NAME=VALUE     For this code alone; NAME alone takes it from here\n" \
        "     --output=DIR         Keep all forms of each result in files there\n"
