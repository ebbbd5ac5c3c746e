/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/acpi.h"
#include "vmm/memmap.h"
#include "vmm/pio.h"

static bool is_serial(uint16_t port) {
        return port >= PIO_SERIAL && port < PIO_SERIAL + SERIAL_PORTS;
}

static PioResult write_byte(Serial *serial, uint16_t port, uint8_t v) {
        if (is_serial(port))
                serial_write(serial, port - PIO_SERIAL, v);
        else if (port == PIO_ACPI_RESET && v == ACPI_RESET_VALUE)
                return PIO_RESET;
        else if (port == PIO_ACPI_SLEEP_CONTROL && (v & ACPI_SLEEP_ENABLE))
                /* S5 is the only state that the tables name, so the type tells nothing more. */
                return PIO_POWEROFF;
        return PIO_DONE;
}

static uint8_t read_byte(Serial *serial, uint16_t port) {
        if (is_serial(port))
                return serial_read(serial, port - PIO_SERIAL);
        if (port == PIO_ACPI_SLEEP_CONTROL || port == PIO_ACPI_SLEEP_STATUS)
                return 0;
        return UINT8_MAX;
}

PioResult pio_access(Serial *serial, uint16_t port, void *data, unsigned size, bool write) {
        uint8_t *p = data;

        assert(serial);
        assert(data);

        /* Every register here is one byte wide. */
        if (size == 1 && write)
                return write_byte(serial, port, *p);
        if (size == 1)
                *p = read_byte(serial, port);
        else if (!write)
                memset(p, 0xff, size);
        return PIO_DONE;
}
