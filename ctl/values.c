/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parse.h"
#include "ctl/ctl.h"
#include "ctl/values.h"

int value_size(const char *option, const char *s, uint64_t *ret) {
        if (parse_size(s, ret) < 0)
                return ctl_usage("--%s=%s is not a size; give one like 256M or 2G.", option, s);
        if (*ret == 0)
                return ctl_usage("--%s= can't be 0.", option);
        return 1;
}

int value_time(const char *option, const char *s, uint64_t *ret) {
        if (parse_usec(s, ret) < 0)
                return ctl_usage("--%s=%s is not a time; give one like 30s, 5min or infinity.", option, s);
        if (*ret == 0)
                return ctl_usage("--%s= can't be 0; for no end say infinity.", option);
        return 1;
}

int value_cpus(const char *s, uint32_t *ret) {
        if (parse_u32(s, ret) < 0 || *ret < 1 || *ret > 16)
                return ctl_usage("--cpus=%s is not a number from 1 to 16.", s);
        return 1;
}

int value_cpu_quota(const char *s, uint64_t *ret) {
        if (parse_cpu_quota(s, ret) < 0 || *ret == 0)
                return ctl_usage("--cpu-quota=%s is not a percentage; give one like 50%%.", s);
        return 1;
}

int value_template_name(const char *s) {
        const char *colon = strchr(s, ':');
        _cleanup_free_ char *name = colon ? strndup(s, (size_t) (colon - s)) : strdup(s);

        if (!name)
                return -ENOMEM;
        if (!template_name_valid(name) || (colon && !template_name_valid(colon + 1)))
                return ctl_usage("'%s' is not NAME or NAME:TAG (letters, digits and . _ -, at most 63 each).", s);
        return 1;
}
