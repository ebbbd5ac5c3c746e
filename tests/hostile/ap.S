/* SPDX-License-Identifier: Apache-2.0 */
/* From the start-up IPI (16-bit, at AP_PAGE) to ap_main() in long mode, over the page tables and the descriptors of
 * start.S. The piece between ap_code and ap_code_end is copied to AP_PAGE. */

#define AP_PAGE 0x8000
#define CR0_PE 0x1
#define CR0_PG_PE 0x80000001
#define CR4_PAE 0x20
#define MSR_EFER 0xc0000080
#define EFER_LME 0x100

        .section .rodata
        .globl ap_code
        .globl ap_code_end
        .code16
ap_code:
        cli
        movw $(AP_PAGE >> 4), %ax
        movw %ax, %ds
        lgdtl gdt_here - ap_code
        movl $CR0_PE, %eax
        movl %eax, %cr0
        ljmpl $0x18, $(AP_PAGE + ap32 - ap_code)

        .code32
ap32:   movl $0x10, %eax
        movl %eax, %ds
        movl %eax, %es
        movl %eax, %ss
        movl $CR4_PAE, %eax
        movl %eax, %cr4
        movl $pml4, %eax
        movl %eax, %cr3
        movl $MSR_EFER, %ecx
        movl $EFER_LME, %eax
        xorl %edx, %edx
        wrmsr
        movl $CR0_PG_PE, %eax
        movl %eax, %cr0
        ljmpl $0x08, $ap64

        .balign 16
gdt_here_table:
        .quad 0
        .quad 0x00af9b000000ffff  /* 64-bit code */
        .quad 0x00cf93000000ffff  /* data */
        .quad 0x00cf9b000000ffff  /* 32-bit code */
gdt_here:
        .word . - gdt_here_table - 1
        .long AP_PAGE + gdt_here_table - ap_code
ap_code_end:

        .section .text
        .code64
ap64:
        movl $0x10, %eax
        movl %eax, %ds
        movl %eax, %es
        movl %eax, %ss
        movl %eax, %fs
        movl %eax, %gs
        movq $ap_stack_top, %rsp
        lidt idt_register(%rip)
        call ap_main
1:      cli
        hlt
        jmp 1b

        .section .bss
        .balign 16
        .skip 16384
ap_stack_top:

        .section .note.GNU-stack, "", @progbits
