/* SPDX-License-Identifier: Apache-2.0 */

/* A guest of a few dozen instructions that says hello on the serial port and then ends, in the way
 * that the first character of its command line asks for. Enough to test a VMM's control path on any
 * machine with /dev/kvm: 32-bit PVH entry, ring 0, plain integer code.
 *
 *   p  power off (ACPI sleep register)        r  reset (ACPI reset register)
 *   t  triple fault                           h  halt for ever
 *   l  loop for ever without an exit          f  flood the serial port for ever
 *   i  look at I/O ports that are not there, then power off
 *   m  look at memory that is not there, then power off */

#define SERIAL 0x3f8
#define ACPI_RESET 0x600
#define ACPI_SLEEP 0x601
#define SLEEP_S5 0x34
#define NOWHERE_PORT 0x1234
#define NOWHERE_MEMORY 0xdff00000
/* Offset in the start info. */
#define INFO_CMDLINE 24
/* Nothing else is up there in low RAM. */
#define STACK 0x90000

        .section .note.pvh, "a", @note
        .align 4
        .long 4, 4, 18                  /* name, description, XEN_ELFNOTE_PHYS32_ENTRY */
        .asciz "Xen"
        .long entry

        .text
        .code32
        .globl entry
entry:
        movl $STACK, %esp
        movl $hello, %esi
        call print

        movl INFO_CMDLINE(%ebx), %esi
        movb (%esi), %al
        cmpb $'r', %al
        je reset
        cmpb $'t', %al
        je fault
        cmpb $'h', %al
        je halt
        cmpb $'l', %al
        je loop
        cmpb $'f', %al
        je flood
        cmpb $'i', %al
        je ports
        cmpb $'m', %al
        je memory

poweroff:
        movw $ACPI_SLEEP, %dx
        movb $SLEEP_S5, %al
        outb %al, %dx
        jmp halt

reset:
        movw $ACPI_RESET, %dx
        movb $1, %al
        outb %al, %dx
        jmp halt

fault:
        lidt no_idt
        ud2

halt:
        cli
        hlt
        jmp halt

loop:
        jmp loop

flood:
        movl $hello, %esi
        call print
        jmp flood

/* Reads must give all ones, in each width; writes must be swallowed. */
ports:
        movw $NOWHERE_PORT, %dx
        movl $0, %eax
        outl %eax, %dx
        inl %dx, %eax
        cmpl $0xffffffff, %eax
        jne wrong
        movw $SERIAL, %dx
        movw $0, %ax
        inw %dx, %ax
        cmpw $0xffff, %ax
        jne wrong
        jmp right

memory:
        movl $NOWHERE_MEMORY, %edi
        movl $0, (%edi)
        movl (%edi), %eax
        cmpl $0xffffffff, %eax
        jne wrong
        movb 3(%edi), %al
        cmpb $0xff, %al
        jne wrong

right:
        movl $ok, %esi
        call print
        jmp poweroff

wrong:
        movl $not_ok, %esi
        call print
        jmp poweroff

/* esi: text */
print:
        movw $SERIAL, %dx
1:      movb (%esi), %al
        testb %al, %al
        je 2f
        outb %al, %dx
        incl %esi
        jmp 1b
2:      ret

        .section .rodata
hello:  .asciz "hello from the guest\n"
ok:     .asciz "ok\n"
not_ok: .asciz "wrong\n"
no_idt: .word 0
        .long 0
